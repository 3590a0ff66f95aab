"""The runs of queries, read through their ``StreamExecution``.

It is private, but stable in Spark 3.5 to 4.3, and still answers after the run has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from ...core.redaction import MAX_CHARACTERS, redact
from ..probe import UNKNOWN_TRIGGER, IdleProgress, ProbedRun, RunFacts, parse_trigger, short_sink
from ..state.flow import TABLE, TOPIC, Place, PlanPlaces, brokers_of
from .jobs import PolledWork
from .jvm import FIELD, RECORD, OptionalCalls, is_connection_lost, parse_flag, private_field

# -- all active runs at once ------------------------------------------------------------------


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
    message: str
    data_available: bool
    trigger_active: bool
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


Reported = LivingRun | UnreadRun


def parse_living_runs(text: str) -> tuple[dict[str, Reported], bool]:
    """Read ``LivingRuns.java``: all active runs by query id, and whether the context is stopped.

    A run whose line cannot be parsed must be polled on its own.

    Raises:
        ValueError: a line names no run, or the last line is missing.

    """
    *lines, stopped, _ = text.split(RECORD)
    return dict(map(_parse_run, lines)), parse_flag(stopped)


def _parse_run(line: str) -> tuple[str, Reported]:
    query_id, run_id, *fields = line.split(FIELD)
    try:
        return query_id, _parse_living(run_id, fields)
    except ValueError as error:
        return query_id, UnreadRun(run_id, fields[0] if len(fields) == 1 else str(error))


def _parse_living(run_id: str, fields: Sequence[str]) -> LivingRun:
    active, stopping, nanoseconds, message, data_available, trigger_active, *rest = fields
    batch_id, session, offsets, idle_progress = rest
    return LivingRun(
        run_id=run_id,
        active=parse_flag(active),
        message=message,
        data_available=parse_flag(data_available),
        trigger_active=parse_flag(trigger_active),
        batch_id=int(batch_id) if batch_id else None,
        session=int(session) if session else None,
        offsets=offsets,
        idle_progress=idle_progress,
        cpu_seconds=int(nanoseconds) / 1e9 if nanoseconds else None,
        stopping=parse_flag(stopping),
    )


# -- places of a plan -------------------------------------------------------------------------
# ``StreamExecution.analyzedPlan`` is what ``start()`` was called on; its leaves are
# ``StreamingRelationV2`` for sources of the current API. ``extraOptions`` are the sink's options, a
# private field. A run is read once, with up to ten calls for each source. Of the options only the
# brokers and the topic are taken.


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
    options = private_field(java, "extraOptions")
    topic, servers = _option(options, "topic"), _option(options, _SERVERS)
    return PlanPlaces(writes=(Place(TOPIC, topic, brokers_of(servers)),) if topic else ())


def _option(options: Any, name: str) -> str:
    option = options.get(name)
    return str(option.get()) if option.isDefined() else ""


# -- one run ----------------------------------------------------------------------------------


_ASYNC_CLASS = "AsyncProgressTrackingMicroBatchExecution"
_UNKNOWN_ERROR = "UnknownError"


class SparkRun:
    """One run; ``last`` is its newest poll, kept when a poll fails.

    Raises:
        Exception: ``run_id`` is empty, and Spark refuses it.

    """

    def __init__(
        self,
        java: Any,
        jvm: Any,
        details: OptionalCalls,
        query_id: str,
        run_id: str,
    ) -> None:
        self._java = java
        self._jvm = jvm
        self._ask = details.ask
        self.facts = self._facts(query_id, run_id or str(java.runId().toString()))
        self.last = ProbedRun(self.facts, active=True)
        self._session: int | None = None
        self._busy_since: float | None = None
        self._polled_closely_at = 0.0
        self._idle_progress = IdleProgress()

    def is_over(self, reported: Reported) -> bool:
        """Whether its query now reports another run, or this run has ended."""
        if reported.run_id:
            return reported.run_id != self.facts.run_id
        return self._ask("is_active", self._has_ended, False)

    def current(self, reported: Reported | None) -> LivingRun | None:
        """The current status, from ``reported`` or from the run itself; None when it has ended.

        Raises:
            Exception: the run must be polled on its own, and Spark refuses to answer.

        """
        listed = reported is not None and reported.run_id in ("", self.facts.run_id)
        if listed and isinstance(reported, LivingRun):
            return reported if reported.active else None
        # A run that Spark no longer lists has ended if it refuses to answer.
        if not listed and self._ask("is_active", self._has_ended, True):
            return None
        return self._living_run()

    def poll(self, reported: LivingRun, now: float, closer_after: float, work: PolledWork) -> None:
        """Apply the status; also poll jobs and stacks once it is busy with one batch for long."""
        # For a continuous query the id is the epoch begun, which does not show commits.
        seen = ProbedRun(
            facts=self.facts,
            active=True,
            message=reported.message,
            trigger_active=reported.trigger_active,
            data_available=reported.data_available,
            stopping=reported.stopping,
            batch_id=reported.batch_id,
            committed_offsets=reported.offsets or self.last.committed_offsets,
        )
        self._session = self._session if reported.session is None else reported.session
        idle_progress = self._idle_progress.poll(seen, reported.idle_progress)
        seen = replace(seen, idle_progress=idle_progress)
        self.last = self._poll_closer(seen, now, closer_after, work, reported.cpu_seconds)

    def final_poll(self) -> ProbedRun:
        """The poll of a run that has ended: why, and in which batch.

        If Spark refuses the exception, it is an unknown error, so that no failure is lost.
        """
        exception, error_class = self._ask("death", self._death, (_UNKNOWN_ERROR, None))
        batch_id, committed, available = self.last.batch_id, self.last.committed_offsets, ""
        if not self.facts.trigger.is_continuous:
            # The last poll may show an earlier batch than the one that failed.
            batch_id = self._ask("batch_id", self._batch_id, batch_id)
            committed = self._committed_offsets() or committed
            available = self._available_offsets()
        return replace(
            self.last,
            active=False,
            batch_id=batch_id,
            committed_offsets=committed,
            available_offsets=available,
            trigger_active=False,
            stopping=False,
            idle_progress=None,
            exception=exception,
            error_class=error_class,
        )

    def _poll_closer(
        self,
        seen: ProbedRun,
        now: float,
        closer_after: float,
        work: PolledWork,
        cpu_seconds: float | None,
    ) -> ProbedRun:
        busy = seen.planning or seen.processing
        if not busy or seen.batch_id != self.last.batch_id:
            self._busy_since = now if busy else None
            return seen
        if self._busy_since is None:
            self._busy_since = now
        closer, mark = self.last.work, self.last.last_progress_mark
        available = self.last.available_offsets
        overdue = now - self._busy_since >= closer_after
        if overdue and now - self._polled_closely_at >= closer_after / 2:
            self._polled_closely_at = now
            if self._session is None:
                self._session = work.session_of(self._java)
            details = work.of(self._java, self.facts, self._session)
            closer = replace(details, jvm_cpu_seconds=cpu_seconds)
            mark = self._ask("last_progress", self._last_progress_mark, mark)
            if not self.facts.trigger.is_continuous:
                available = self._available_offsets()
        return replace(seen, work=closer, last_progress_mark=mark, available_offsets=available)

    def _facts(self, query_id: str, run_id: str) -> RunFacts:
        java, ask = self._java, self._ask
        trigger = ask("trigger", lambda: str(java.trigger().toString()), UNKNOWN_TRIGGER)
        is_async = ask("async_progress", self._is_async, False)
        sink = ask("sink", lambda: str(java.sink().toString()), "")
        return RunFacts(
            query_id=query_id,
            run_id=run_id,
            name=ask("name", java.name, None),
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
        plan = self._ask("plan", lambda: plan_places(self._java), nothing)
        if "KafkaTable" not in sink:
            return plan
        written = self._ask("sink_topic", lambda: kafka_sink(self._java), nothing)
        return replace(plan, writes=written.writes)

    def _is_async(self) -> bool:
        return bool(self._java.getClass().getSimpleName() == _ASYNC_CLASS)

    def _log_interval(self) -> float:
        """``asyncProgressTrackingCheckpointIntervalMs``."""
        return int(self._java.asyncProgressTrackingCheckpointingIntervalMs()) / 1000

    def _has_ended(self) -> bool:
        """Its thread has, or an exception will end it: ``stop()`` only begins the end."""
        java = self._java
        if java.isActive():
            return False
        return bool(java.exception().isDefined()) or not java.queryExecutionThread().isAlive()

    def _living_run(self) -> LivingRun | None:
        if self._has_ended():
            return None
        status = msgspec.json.decode(self._java.status().json())
        batch_id = self.last.batch_id
        if not self.facts.trigger.is_continuous:
            batch_id = self._ask("batch_id", self._batch_id, batch_id)
        return LivingRun(
            run_id=self.facts.run_id,
            active=True,
            message=status["message"],
            data_available=status["isDataAvailable"],
            trigger_active=status["isTriggerActive"],
            batch_id=batch_id,
            offsets=self._committed_offsets(),
            idle_progress=self._ask("idle_progress", self._last_progress_json, ""),
            stopping=not self._java.isActive(),
        )

    def _batch_id(self) -> int:
        """The batch in flight, or the next one. Never call this for a continuous query."""
        try:
            return int(self._java.getLatestExecutionContext().batchId())
        except Py4JError as error:
            if isinstance(error, (Py4JJavaError, Py4JNetworkError)):
                raise
            # Spark 3.5 has no such method.
            return int(self._java.currentBatchId())

    def _committed_offsets(self) -> str:
        """Where the last committed batch ended."""
        return self._ask("offsets", lambda: str(self._java.committedOffsets().toString()), "")

    def _available_offsets(self) -> str:
        """Where the planned batch ends; without one, where the last batch ended."""
        return self._ask("end_offsets", lambda: str(self._java.availableOffsets().toString()), "")

    def _last_progress_mark(self) -> str:
        """When the newest recorded trigger began; grows with every record."""
        progress = self._java.lastProgress()
        return "" if progress is None else str(progress.timestamp())

    def _last_progress_json(self) -> str:
        progress = self._java.lastProgress()
        return "" if progress is None else str(progress.json())

    def _death(self) -> tuple[str | None, str | None]:
        """The exception that ended it, with all its causes, and Spark's error class."""
        option = self._java.exception()
        if not option.isDefined():
            return None, None
        cause = option.get().cause()
        text = self._ask("exception", lambda: self._text_of(cause), _UNKNOWN_ERROR)
        return text, _error_class(cause)

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
