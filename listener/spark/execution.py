"""The runs of queries, read through their ``StreamExecution``: all active ones at once, or one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from ...core.redaction import MAX_CHARACTERS, redact
from ..probe import UNKNOWN_TRIGGER, RunFacts, parse_trigger, short_sink
from ..state.flow import TABLE, TOPIC, Place, PlanPlaces, brokers_of
from .jvm import (
    FIELD,
    RECORD,
    OptionalCalls,
    compile_in_driver,
    is_connection_lost,
    parse_flag,
)

# -- living runs ------------------------------------------------------------------------------
# The status of all active runs, parsed from the text that ``LivingRuns.java`` writes.


class RunStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """``StreamingQueryStatus``."""

    message: str
    is_data_available: bool
    is_trigger_active: bool


class LivingRun(msgspec.Struct, frozen=True, gc=False):
    """One run at one moment.

    ``batch_id`` is the batch in flight, or the next one; None for a continuous query. ``session``
    is the identity hash of the session that its batches run in, None if unknown. ``offsets``, as
    Spark prints them, and ``idle_progress``, the newest progress without a batch as JSON, are
    empty when they have not changed. ``cpu_seconds`` are those of its thread, None if unknown;
    ``stopping``: it was stopped, and that thread goes on.
    """

    run_id: str
    active: bool
    status: RunStatus
    batch_id: int | None
    session: int | None = None
    offsets: str = ""
    idle_progress: str = ""
    cpu_seconds: float | None = None
    stopping: bool = False


class UnreadRun(msgspec.Struct, frozen=True, gc=False):
    """A run that must be polled on its own; ``run_id`` is empty if unknown."""

    run_id: str = ""
    reason: str = ""
    """What went wrong; empty if the run was not polled yet."""


class LivingRuns(msgspec.Struct, frozen=True):
    """All active runs by query id.

    ``context_stopped`` is None when nobody checked whether the SparkContext is stopped.
    """

    runs: Mapping[str, LivingRun | UnreadRun]
    context_stopped: bool | None = None


def parse_living_runs(text: str) -> LivingRuns:
    """Read the answer; a run whose line cannot be parsed must be polled on its own.

    Raises:
        ValueError: a line names no run, or the last line is missing.

    """
    *lines, stopped, _ = text.split(RECORD)
    return LivingRuns(dict(_parsed(line.split(FIELD)) for line in lines), parse_flag(stopped))


def parse_status(text: str) -> RunStatus:
    """Read ``StreamingQueryStatus.json``.

    Raises:
        ValueError: the text is not a status.

    """
    return msgspec.json.decode(text, type=RunStatus)


def _parsed(fields: list[str]) -> tuple[str, LivingRun | UnreadRun]:
    query_id, run_id, *rest = fields
    try:
        return query_id, _described(run_id, rest)
    except ValueError as error:
        return query_id, UnreadRun(run_id, rest[0] if len(rest) == 1 else str(error))


def _described(run_id: str, fields: list[str]) -> LivingRun:
    active, stopping, nanoseconds, message, has_data, triggered, batch_id, *rest = fields
    session, offsets, idle_progress = rest
    return LivingRun(
        run_id=run_id,
        active=parse_flag(active),
        status=RunStatus(message, parse_flag(has_data), parse_flag(triggered)),
        batch_id=int(batch_id) if batch_id else None,
        session=int(session) if session else None,
        offsets=offsets,
        idle_progress=idle_progress,
        cpu_seconds=int(nanoseconds) / 1e9 if nanoseconds else None,
        stopping=parse_flag(stopping),
    )


# -- spark living runs ------------------------------------------------------------------------
# Reads the status of all active runs with one Py4J command.
#
# Py4J needs one command per method call, six per run, and each command costs time in the JVM and in
# Python. So a small Java class in the driver's JVM makes the calls.


NAME = "LivingRuns"
RETRY_SECONDS = 60.0


class SparkLivingRuns:
    """``LivingRuns.java`` in Spark's JVM, compiled at first use; used by one thread.

    A refused call is tried again after ``RETRY_SECONDS``.
    """

    def __init__(
        self,
        jvm: Any,
        executions: Any,
        spark_context: Any,
        details: OptionalCalls,
        *,
        has_context: bool,
    ) -> None:
        self._jvm = jvm
        batch_holder = "getLatestExecutionContext" if has_context else ""
        self._about = executions, batch_holder, spark_context
        self._details = details
        self._java: Any = None
        self._refused_at: float | None = None

    def ask(self, now: float) -> LivingRuns | None:
        """The status of all active runs; None if this Spark refuses the call.

        ``now`` is monotonic seconds.

        Raises:
            Py4JNetworkError, ConnectionError, EOFError: the JVM does not answer.

        """
        if self._refused_at is not None and now - self._refused_at < RETRY_SECONDS:
            return None
        answer = self._details.ask("living_runs", self._report, None)
        self._refused_at = now if answer is None else None
        return answer

    def _report(self) -> LivingRuns:
        if self._java is None:
            self._java = compile_in_driver(self._jvm, NAME).newInstance()
        return parse_living_runs(str(self._java.ask(*self._about)))


# -- spark places -----------------------------------------------------------------------------
# Reads the places that only a run's plan shows: Iceberg's tables, Kafka's brokers and its topic.
#
# ``StreamExecution.analyzedPlan`` is what ``start()`` was called on; its leaves are
# ``StreamingRelationV2`` for sources of the current API. ``extraOptions`` are the sink's options, a
# private field. Both are stable in Spark 3.5 to 4.3. A run is read once, with up to ten calls for
# each source. Of the options only the brokers and the topic are taken.


MAX_SOURCES = 20
_SERVERS = "kafka.bootstrap.servers"


def plan_places(java: Any) -> PlanPlaces:
    """The places that the plan of this ``StreamExecution`` shows.

    Raises:
        Exception: Spark refuses to show it.

    """
    leaves = java.analyzedPlan().collectLeaves()
    tables: list[Place] = []
    brokers: list[tuple[str, ...]] = []
    for index in range(min(int(leaves.size()), MAX_SOURCES)):
        leaf = leaves.apply(index)
        if str(leaf.getClass().getSimpleName()) != "StreamingRelationV2":
            continue
        if str(leaf.sourceName()).lower() == "kafka":
            brokers.append(brokers_of(str(leaf.extraOptions().get(_SERVERS) or "")))
        elif "." in (name := redact(str(leaf.table().name()))):
            tables.append(Place(TABLE, name))
    return PlanPlaces(tuple(tables), (), tuple(brokers))


def kafka_sink(java: Any) -> PlanPlaces:
    """The topic that a Kafka sink writes to; nothing if each row names its own.

    Raises:
        Exception: Spark refuses to show it.

    """
    options = _sink_options(java)
    topic, servers = _option(options, "topic"), _option(options, _SERVERS)
    return PlanPlaces(writes=(Place(TOPIC, topic, brokers_of(servers)),) if topic else ())


def _sink_options(java: Any) -> Any:
    declaring = java.getClass()
    while str(declaring.getSimpleName()) not in ("MicroBatchExecution", "ContinuousExecution"):
        declaring = declaring.getSuperclass()
    field = declaring.getDeclaredField("extraOptions")
    field.setAccessible(True)
    return field.get(java)


def _option(options: Any, name: str) -> str:
    found = options.get(name)
    return str(found.get()) if found.isDefined() else ""


# -- spark execution --------------------------------------------------------------------------
# One run of a query, read through its ``StreamExecution``.
#
# Private, but stable in Spark 3.5 to 4.3.


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
        """Whether the run has ended: its thread has, or an exception will end it.

        ``isActive`` is false as soon as ``stop()`` begins.

        Raises:
            Exception: Spark refuses to answer.

        """
        java = self.java
        if java.isActive():
            return False
        return bool(java.exception().isDefined()) or not java.queryExecutionThread().isAlive()

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
            stopping=not self.java.isActive(),
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
