"""The runs of queries, read through their ``StreamExecution``.

It is private, but stable in Spark 3.5 to 4.3, and still answers after the run has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from ...core.redaction import MAX_CHARACTERS, redact
from ..foresight.resources import Heap
from ..probe_report import (
    UNKNOWN_TRIGGER,
    ProbedRun,
    RunFacts,
    SchedulerLoop,
    SessionEnd,
    parse_trigger,
    short_sink,
    with_idle_progress,
)
from ..state.flow import TABLE, TOPIC, Dataset, PlanDatasets, brokers_of
from .jobs import PolledWork
from .jvm import FIELD, GROUP, NETWORK_ERRORS, RECORD, OptionalCalls, private_field

# -- all active runs at once ------------------------------------------------------------------

SESSION_CHARACTERS = 100


class LivingRun(msgspec.Struct, frozen=True, gc=False):
    """What one poll shows of a run that Spark lists, as ``LivingRuns.java`` describes it."""

    run_id: str
    goes_on: bool
    """Whether its thread works on, also after ``stop()``."""
    stopping: bool
    cpu_seconds: float | None
    """CPU time of its thread; None where the JVM does not say."""
    message: str
    data_available: bool
    trigger_active: bool
    batch_id: int | None
    """The batch in flight, or the next one; None for a continuous query, which has epochs."""
    session: int | None
    """The identity hash of the session that its batches run in; None where Spark refuses it."""
    offsets: str
    """Where its last batch ended, as Spark prints it; empty if unchanged since the last poll."""
    idle_progress: str
    """The newest progress, if that had no batch, as JSON; empty if unchanged too."""


class UnreadableRun(msgspec.Struct, frozen=True, gc=False):
    """A run that could not be read, and why; its id is empty if not even that is known."""

    run_id: str
    reason: str


ListedRun = LivingRun | UnreadableRun


class Living(msgspec.Struct, frozen=True):
    """All active runs by query id, whether the context is stopped, its scheduler, and the heap.

    ``session_ends`` has only what is new since the last poll; None where no session is served.
    """

    runs: dict[str, ListedRun]
    stopped: bool
    scheduler: SchedulerLoop | None = None
    heap: Heap | None = None
    """None where it is not due, and where the JVM does not say."""
    session_ends: dict[str, SessionEnd] | None = None


def parse_living_runs(text: str, now: float) -> Living:
    """Read ``LivingRuns.java``, and ``DriverHeap.java`` and ``ConnectSessions.java`` after it.

    ``now`` is monotonic seconds.

    Raises:
        ValueError: a line names no run, or the last line is missing.

    """
    text, serves, sessions = text.partition(GROUP)
    *lines, last, heap = text.split(RECORD)
    runs = {}
    for line in lines:
        query_id, run_id, *fields = line.split(FIELD)
        runs[query_id] = _parse_run(run_id, fields)
    stopped, _, scheduler = last.partition(FIELD)
    ends = dict(_session_end(line, now) for line in sessions.split(RECORD)[:-1]) if serves else None
    return Living(runs, stopped == "true", _scheduler(scheduler), _heap(heap), ends)


def _parse_run(run_id: str, fields: list[str]) -> ListedRun:
    if len(fields) == 1:
        return UnreadableRun(run_id, fields[0])
    try:
        goes_on, stopping, cpu, message, data, trigger, batch_id, session, offsets, idle = fields
        return LivingRun(
            run_id=run_id,
            goes_on=goes_on == "true",
            stopping=stopping == "true",
            cpu_seconds=int(cpu) / 1e9 if cpu else None,
            message=message,
            data_available=data == "true",
            trigger_active=trigger == "true",
            batch_id=int(batch_id) if batch_id else None,
            session=int(session) if session else None,
            offsets=offsets,
            idle_progress=idle,
        )
    except ValueError as error:
        return UnreadableRun(run_id, str(error))


def _scheduler(text: str) -> SchedulerLoop | None:
    alive, _, waits = text.partition(FIELD)
    return SchedulerLoop(alive == "true", int(waits) / 1e9) if text else None


def _heap(text: str) -> Heap | None:
    """None where it was not due, or is unreadable: the runs before it still count."""
    try:
        used, left, most, paused, collections = text.split(FIELD)
        heap = Heap(
            used_bytes=int(used),
            after_gc_bytes=int(left) if left else None,
            max_bytes=int(most),
            gc_seconds=int(paused) / 1e3,
            collections=int(collections),
        )
    except ValueError:
        return None
    return heap if heap.max_bytes > 0 else None


def _session_end(line: str, now: float) -> tuple[str, SessionEnd]:
    server_id, user, session, ago, idle, allowed = line.split(FIELD)
    return server_id, SessionEnd(
        at=now - int(ago) / 1e3,
        session=_named_by_client(session),
        user=_named_by_client(user),
        idle_seconds=int(idle) / 1e3,
        allowed_seconds=int(allowed) / 1e3,
    )


def _named_by_client(text: str) -> str:
    """A name that a client chose: one line, cut, without secrets."""
    return " ".join(redact(text).split())[:SESSION_CHARACTERS]


def read_run(java: Any, identity: Callable[[Any], int], details: OptionalCalls) -> LivingRun:
    """Read a ``StreamExecution`` with a dozen commands, as ``LivingRuns.java`` describes it.

    What else Spark refuses is empty, or None.

    Raises:
        Exception: Spark does not show whether the run is active, or its status.

    """
    ask = details.ask
    active = bool(java.isActive())
    # stop() only begins the end.
    stopping = not active and not (
        java.exception().isDefined() or not java.queryExecutionThread().isAlive()
    )
    status = msgspec.json.decode(java.status().json())
    name = ask("execution_class", lambda: str(java.getClass().getSimpleName()), "Continuous")
    is_continuous = name.startswith("Continuous")
    return LivingRun(
        run_id=str(java.runId().toString()),
        goes_on=active or stopping,
        stopping=stopping,
        cpu_seconds=None,
        message=status["message"],
        data_available=status["isDataAvailable"],
        trigger_active=status["isTriggerActive"],
        batch_id=None if is_continuous else ask("batch_id", lambda: _batch_id(java), None),
        session=ask("batch_session", lambda: identity(java.sparkSessionForStream()), None),
        offsets=ask("offsets", lambda: str(java.committedOffsets().toString()), ""),
        idle_progress=ask("idle_progress", lambda: _last_progress(java), ""),
    )


def _last_progress(java: Any) -> str:
    progress = java.lastProgress()
    return "" if progress is None else str(progress.json())


def _batch_id(java: Any) -> int:
    """The batch in flight, or the next one. Never call this for a continuous query."""
    try:
        return int(java.getLatestExecutionContext().batchId())
    except Py4JError as error:
        if isinstance(error, (Py4JJavaError, Py4JNetworkError)):
            raise
        # Spark 3.5 has no such method.
        return int(java.currentBatchId())


# -- datasets of a plan -----------------------------------------------------------------------
# ``StreamExecution.analyzedPlan`` is what ``start()`` was called on; its leaves are
# ``StreamingRelationV2`` for sources of the current API. ``extraOptions`` are the sink's options, a
# private field. A run is read once, with up to ten calls for each source. Of the options only the
# brokers and the topic are taken.


MAX_SOURCES = 20
_SERVERS = "kafka.bootstrap.servers"


def plan_datasets(java: Any) -> PlanDatasets:
    """The datasets that the plan of this ``StreamExecution`` shows.

    Raises:
        Exception: Spark refuses to show it.

    """
    leaves = java.analyzedPlan().collectLeaves()
    tables: list[Dataset] = []
    brokers: list[tuple[str, ...]] = []
    for index in range(min(int(leaves.size()), MAX_SOURCES)):
        leaf = leaves.apply(index)
        if str(leaf.getClass().getSimpleName()) != "StreamingRelationV2":
            continue
        if str(leaf.sourceName()).lower() == "kafka":
            brokers.append(brokers_of(str(leaf.extraOptions().get(_SERVERS) or "")))
        elif "." in (name := redact(str(leaf.table().name()))):
            tables.append(Dataset(TABLE, name))
    return PlanDatasets(tuple(tables), (), tuple(brokers))


def kafka_sink(java: Any) -> PlanDatasets:
    """The topic that a Kafka sink writes to; nothing if each row names its own.

    Raises:
        Exception: Spark refuses to show it.

    """
    options = private_field(java, "extraOptions")
    topic = _option(options, "topic")
    servers = _option(options, _SERVERS)
    return PlanDatasets(writes=(Dataset(TOPIC, topic, brokers_of(servers)),) if topic else ())


def _option(options: Any, name: str) -> str:
    option = options.get(name)
    return str(option.get()) if option.isDefined() else ""


# -- one run ----------------------------------------------------------------------------------


_ASYNC_CLASS = "AsyncProgressTrackingMicroBatchExecution"
_UNKNOWN_ERROR = "UnknownError"


class SparkRun:
    """One run; ``last`` is its newest poll, kept when a poll fails."""

    def __init__(
        self, java: Any, jvm: Any, details: OptionalCalls, query_id: str, run_id: str
    ) -> None:
        self._java = java
        self._jvm = jvm
        self._ask = details.ask
        self.facts = self._facts(query_id, run_id)
        self.last = ProbedRun(self.facts, active=True)
        self._busy_since: float | None = None
        self._polled_closely_at = 0.0

    def poll(self, run: LivingRun, now: float, closer_after: float, work: PolledWork) -> bool:
        """Apply what is reported of it; False if it has ended.

        Jobs and stacks are polled too once it is busy with one batch for long.
        """
        if not run.goes_on:
            return False
        seen = ProbedRun(
            facts=self.facts,
            active=True,
            message=run.message,
            trigger_active=run.trigger_active,
            data_available=run.data_available,
            stopping=run.stopping,
            batch_id=run.batch_id,
            committed_offsets=run.offsets or self.last.committed_offsets,
            tasks=work.tasks.get(self.facts.query_id),
        )
        seen = with_idle_progress(seen, run.idle_progress, self.last)
        self._note_batch(seen, now)
        if self._is_due(now, closer_after):
            self._polled_closely_at = now
            details = work.of(self._java, self.facts, run.session)
            seen = replace(
                seen,
                work=replace(details, jvm_cpu_seconds=run.cpu_seconds),
                last_progress_mark=self._ask(
                    "last_progress", self._last_progress_mark, self.last.last_progress_mark
                ),
                available_offsets=self._available_offsets(),
            )
        elif self._busy_since is not None and seen.batch_id == self.last.batch_id:
            seen = replace(
                seen,
                work=self.last.work,
                last_progress_mark=self.last.last_progress_mark,
                available_offsets=self.last.available_offsets,
            )
        self.last = seen
        return True

    def _note_batch(self, seen: ProbedRun, now: float) -> None:
        """Note since when it is busy with one batch."""
        is_busy = seen.planning or seen.processing
        if not is_busy or seen.batch_id != self.last.batch_id:
            self._busy_since = now if is_busy else None
        elif self._busy_since is None:
            self._busy_since = now

    def _is_due(self, now: float, closer_after: float) -> bool:
        """Whether it is busy with one batch for so long that its jobs are to be polled now."""
        if self._busy_since is None or now - self._busy_since < closer_after:
            return False
        return now - self._polled_closely_at >= closer_after / 2

    def final_poll(self, work: PolledWork) -> ProbedRun:
        """The poll of a run that has ended: why, and in which batch.

        If Spark refuses the exception, it is an unknown error, so that no failure is lost.
        """
        exception, error_class = self._ask("death", self._death, (_UNKNOWN_ERROR, None))
        batch_id = self.last.batch_id
        committed = self.last.committed_offsets
        if not self.facts.trigger.is_continuous:
            # The last poll may show an earlier batch than the one that failed.
            batch_id = self._ask("batch_id", lambda: _batch_id(self._java), batch_id)
            offsets = self._java.committedOffsets
            committed = self._ask("offsets", lambda: str(offsets().toString()), committed)
        return replace(
            self.last,
            active=False,
            batch_id=batch_id,
            committed_offsets=committed,
            available_offsets=self._available_offsets(),
            trigger_active=False,
            stopping=False,
            idle_progress=None,
            tasks=work.tasks.get(self.facts.query_id),
            exception=exception,
            error_class=error_class,
        )

    def _facts(self, query_id: str, run_id: str) -> RunFacts:
        java = self._java
        ask = self._ask
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

    def _plan(self, sink: str) -> PlanDatasets:
        nothing = PlanDatasets()
        plan = self._ask("plan", lambda: plan_datasets(self._java), nothing)
        if "KafkaTable" not in sink:
            return plan
        written = self._ask("sink_topic", lambda: kafka_sink(self._java), nothing)
        return replace(plan, writes=written.writes)

    def _is_async(self) -> bool:
        return bool(self._java.getClass().getSimpleName() == _ASYNC_CLASS)

    def _log_interval(self) -> float:
        """``asyncProgressTrackingCheckpointIntervalMs``."""
        return int(self._java.asyncProgressTrackingCheckpointingIntervalMs()) / 1000

    def _available_offsets(self) -> str:
        """Where the planned batch ends; without one, where the last batch ended."""
        if self.facts.trigger.is_continuous:
            return ""
        return self._ask("end_offsets", lambda: str(self._java.availableOffsets().toString()), "")

    def _last_progress_mark(self) -> str:
        """When the newest recorded trigger began; grows with every record."""
        progress = self._java.lastProgress()
        return "" if progress is None else str(progress.timestamp())

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
    except NETWORK_ERRORS:
        raise
    except Exception:  # noqa: BLE001 - any other exception has none
        return None
    return None if condition is None else str(condition)
