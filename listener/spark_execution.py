"""One run of a query, asked through its ``StreamExecution``.

Private, but stable in Spark 3.5 to 4.3.
"""

from __future__ import annotations

from typing import Any

import msgspec
from py4j.protocol import Py4JError

from .decode import DecodeError, decode
from .details import Details
from .events import EventKind, Progress
from .probing import RunFacts, parse_trigger, short_sink
from .redaction import MAX_CHARACTERS, redact

FIRST_WITH_EXECUTION_CONTEXT = 4
_ASYNC_CLASS = "AsyncProgressTrackingMicroBatchExecution"


class Status(msgspec.Struct, rename="camel"):
    """``StreamingQueryStatus``."""

    message: str
    is_data_available: bool
    is_trigger_active: bool


class SparkExecution:
    """Answers questions about one run; ``java`` still answers after its death."""

    def __init__(self, java: Any, jvm: Any, spark_major: int, details: Details) -> None:
        self.java = java
        self._jvm = jvm
        self._has_execution_context = spark_major >= FIRST_WITH_EXECUTION_CONTEXT
        self._ask = details.ask

    def facts(self, query_id: str) -> RunFacts:
        """What never changes in this run."""
        java, ask = self.java, self._ask
        trigger = ask("trigger", lambda: java.trigger().toString(), "Unknown")
        is_async = ask("async_progress", self._is_async, False)
        return RunFacts(
            query_id=query_id,
            run_id=java.runId().toString(),
            name=java.name(),
            trigger=parse_trigger(trigger),
            sink=redact(short_sink(ask("sink", lambda: java.sink().toString(), ""))),
            checkpoint=ask("checkpoint", java.resolvedCheckpointRoot, ""),
            async_progress=is_async,
            log_interval_seconds=ask("log_interval", self._log_interval, 0.0) if is_async else 0.0,
        )

    def status(self) -> Status:
        """What it says it is doing."""
        return msgspec.json.decode(self.java.status().json(), type=Status)

    def batch_id(self, default: int | None) -> int | None:
        """The batch in flight, or the next one. Never ask this of a Continuous run."""
        return self._ask("batch_id", self._batch_id, default)

    def committed_offsets(self) -> str:
        """The offsets of the last commit, as Spark prints them."""
        return self._ask("offsets", lambda: str(self.java.committedOffsets().toString()), "")

    def last_progress_mark(self, default: str) -> str:
        """When the newest recorded trigger began; grows with every record."""
        return self._ask("last_progress", self._last_progress_mark, default)

    def idle_progress(self) -> Progress | None:
        """What the newest recorded trigger found, if it ran no batch."""
        text = self._ask("idle_progress", self._last_progress_json, "")
        return _without_batch(text) if text else None

    def death(self) -> tuple[str | None, str | None]:
        """The exception it died of, with all its causes, and Spark's own error class."""
        option = self.java.exception()
        if not option.isDefined():
            return None, None
        cause = option.get().cause()
        text = self._ask("exception", lambda: self._text_of(cause), "UnknownError")
        return text, _error_class(cause)

    def _is_async(self) -> bool:
        return bool(self.java.getClass().getSimpleName() == _ASYNC_CLASS)

    def _log_interval(self) -> float:
        """``asyncProgressTrackingCheckpointIntervalMs``."""
        return int(self.java.asyncProgressTrackingCheckpointingIntervalMs()) / 1000

    def _batch_id(self) -> int:
        if self._has_execution_context:
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


def _without_batch(text: str) -> Progress | None:
    """Read a progress that is no event; one that cannot be read proves nothing."""
    try:
        event = decode(EventKind.PROGRESS, f'{{"progress":{text}}}')
    except DecodeError:
        return None
    return event if isinstance(event, Progress) and not event.committed else None


def _error_class(cause: Any) -> str | None:
    """Spark's own error class, which only a ``SparkThrowable`` has."""
    try:
        condition = cause.getErrorClass()
    except Py4JError:
        return None
    return None if condition is None else str(condition)
