"""One run of a query, read through its ``StreamExecution``.

Private, but stable in Spark 3.5 to 4.3.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..core.redaction import MAX_CHARACTERS, redact
from .living_runs import LivingRun, parse_status
from .optional_calls import OptionalCalls, is_connection_lost
from .places import PlanPlaces
from .probing import UNKNOWN_TRIGGER, RunFacts, parse_trigger, short_sink
from .spark_places import kafka_sink, plan_places

_ASYNC_CLASS = "AsyncProgressTrackingMicroBatchExecution"
_UNKNOWN_ERROR = "UnknownError"


class SparkExecution:
    """Reads one run; ``java`` still answers after the run has ended."""

    def __init__(self, java: Any, jvm: Any, details: OptionalCalls, *, has_context: bool) -> None:
        self.java = java
        self._jvm = jvm
        self._has_context = has_context
        self._ask = details.ask

    def facts(self, query_id: str, run_id: str) -> RunFacts:
        """The facts that never change; ``run_id`` is empty if it must be read.

        Raises:
            Exception: the run id must be read, and Spark refuses it.

        """
        java, ask = self.java, self._ask
        nameless: str | None = None
        trigger = ask("trigger", lambda: str(java.trigger().toString()), UNKNOWN_TRIGGER)
        is_async = ask("async_progress", self._is_async, False)
        run_id = run_id or str(java.runId().toString())
        sink = ask("sink", lambda: str(java.sink().toString()), "")
        return RunFacts(
            query_id=query_id,
            run_id=run_id,
            name=ask("name", java.name, nameless),
            trigger=parse_trigger(trigger),
            sink=redact(short_sink(sink)),
            checkpoint=ask("checkpoint", java.resolvedCheckpointRoot, ""),
            async_progress=is_async,
            log_interval_seconds=ask("log_interval", self._log_interval, 0.0) if is_async else 0.0,
            session=ask("session_id", lambda: str(java.sparkSession().sessionUUID()), ""),
            plan=self._plan(sink),
        )

    def _plan(self, sink: str) -> PlanPlaces:
        nothing = PlanPlaces()
        plan = self._ask("plan", lambda: plan_places(self.java), nothing)
        if "KafkaTable" not in sink:
            return plan
        written = self._ask("sink_topic", lambda: kafka_sink(self.java), nothing)
        return replace(plan, writes=written.writes)

    def is_over(self) -> bool:
        """Whether the run has ended.

        Raises:
            Exception: Spark refuses to answer.

        """
        return not self.java.isActive()

    def living_run(self, facts: RunFacts, batch_id: int | None) -> LivingRun | None:
        """The current status; None when it has ended. ``batch_id`` is used if Spark has none.

        Raises:
            Exception: Spark refuses to answer.

        """
        if self.is_over():
            return None
        if not facts.trigger.is_continuous:
            batch_id = self.batch_id(batch_id)
        return LivingRun(
            run_id=facts.run_id,
            active=True,
            status=parse_status(self.java.status().json()),
            batch_id=batch_id,
            offsets=self.committed_offsets(),
            idle_progress=self._ask("idle_progress", self._last_progress_json, ""),
        )

    def available_offsets(self) -> str:
        """Where the planned batch ends; without one, where the last batch ended."""
        return self._ask("end_offsets", lambda: str(self.java.availableOffsets().toString()), "")

    def committed_offsets(self) -> str:
        """Where the last committed batch ended."""
        return self._ask("offsets", lambda: str(self.java.committedOffsets().toString()), "")

    def batch_id(self, default: int | None) -> int | None:
        """The batch in flight, or the next one. Never call this for a continuous query."""
        return self._ask("batch_id", self._batch_id, default)

    def last_progress_mark(self, default: str) -> str:
        """When the newest recorded trigger began; grows with every record."""
        return self._ask("last_progress", self._last_progress_mark, default)

    def death(self) -> tuple[str | None, str | None]:
        """The exception that ended it, with all its causes, and Spark's error class.

        If Spark refuses the answer, this returns an unknown error, so that no failure is lost.
        """
        unknown: tuple[str | None, str | None] = (_UNKNOWN_ERROR, None)
        return self._ask("death", self._death, unknown)

    def _death(self) -> tuple[str | None, str | None]:
        option = self.java.exception()
        if not option.isDefined():
            return None, None
        cause = option.get().cause()
        text = self._ask("exception", lambda: self._text_of(cause), _UNKNOWN_ERROR)
        return text, _error_class(cause)

    def _is_async(self) -> bool:
        return bool(self.java.getClass().getSimpleName() == _ASYNC_CLASS)

    def _log_interval(self) -> float:
        """``asyncProgressTrackingCheckpointIntervalMs``."""
        return int(self.java.asyncProgressTrackingCheckpointingIntervalMs()) / 1000

    def _batch_id(self) -> int:
        if self._has_context:
            return int(self.java.getLatestExecutionContext().batchId())
        return int(self.java.currentBatchId())

    def _last_progress_mark(self) -> str:
        progress = self.java.lastProgress()
        return "" if progress is None else str(progress.timestamp())

    def _last_progress_json(self) -> str:
        progress = self.java.lastProgress()
        return "" if progress is None else str(progress.json())

    def _text_of(self, cause: Any) -> str:
        text = getattr(self._jvm, "org.apache.spark.util.Utils").exceptionString(cause)
        return str(text)[:MAX_CHARACTERS]


def _error_class(cause: Any) -> str | None:
    """Spark's error class, which only a ``SparkThrowable`` has."""
    try:
        condition = cause.getErrorClass()
    except Exception as error:
        if is_connection_lost(error):
            raise
        return None
    return None if condition is None else str(condition)
