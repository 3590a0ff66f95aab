"""The second signal: polls all queries of a Spark application."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec.structs import replace

from ..foresight.resources import Heap
from ..foresight.tasks import TaskSums
from ..probe_report import UNOWNED, Context, ProbedRun, ProbeReport, SchedulerLoop, SessionEnd
from ..python_frames import is_running
from .event_paths import EventPath
from .execution import (
    ListedRun,
    Living,
    LivingRun,
    SparkRun,
    UnreadableRun,
    parse_living_runs,
    read_run,
)
from .jobs import PolledWork, identity
from .jvm import (
    NETWORK_ERRORS,
    THROWN,
    OptionalCalls,
    active_runs,
    is_gone,
    was_terminated,
)

KEEP_REPORTED = 256
"""How many ended runs are kept at least."""
KEEP_SECONDS = 10.0
"""How long each one is kept: only the newest report is read, so one may be missed."""
MAX_SESSIONS = 1000
"""Of those that have ended; as many as Spark keeps."""
SHUTDOWN_HOOKS = "org.apache.spark.util.ShutdownHookManager"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class EndedRuns:
    """Keeps the newest runs that have ended, and each for a while."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[float, ProbedRun]] = {}

    def add(self, run: ProbedRun, now: float) -> None:
        """Add the last poll of a run; ``now`` is monotonic seconds."""
        self._runs[run.facts.run_id] = now, run

    def report(self, now: float) -> tuple[ProbedRun, ...]:
        """All runs that are kept, oldest first."""
        for run_id in list(self._runs)[:-KEEP_REPORTED]:
            if now - self._runs[run_id][0] > KEEP_SECONDS:
                del self._runs[run_id]
        return tuple(run for _, run in self._runs.values())


class SparkProbe:
    """Polls all queries of one classic SparkContext, in all sessions; used by one thread.

    Py4J needs a dozen commands per run, and each costs time in the JVM and in Python. So our Java
    describes all runs in one answer. Where Spark refuses it, each run is read on its own. A run
    that does not answer keeps its last poll and does not affect the others.

    Once a run is busy with the same batch for ``closer_after_seconds``, its jobs and stacks are
    polled too, every half of that interval. It must be far below the shortest stall window.

    A JVM that has ended is reported, and not polled again.
    """

    def __init__(self, spark: Any, path: EventPath, closer_after_seconds: float) -> None:
        self.details = OptionalCalls()
        self._path = path
        self._closer_after = closer_after_seconds
        self._context = spark.sparkContext
        self._stop = inspect.unwrap(type(self._context).stop).__code__
        # Private: PySpark has no public way to the JVM, the status tracker, or all sessions.
        self._jvm = self._context._jvm  # noqa: SLF001
        self._tracked: Any = self._context._jsc  # noqa: SLF001
        self._active: Any = active_runs(spark) if path.executions is None else path.executions
        """None once the probe is released."""
        self._uuid = getattr(self._jvm, "java.util.UUID")
        self._living: dict[str, SparkRun] = {}
        self._ended = EndedRuns()
        self._scheduler: SchedulerLoop | None = None
        """At the newest poll."""
        self._unowned_tasks: TaskSums | None = None
        """At the newest poll."""
        self._heap: Heap | None = None
        self._session_ends: dict[str, SessionEnd] | None = None
        self._seen = Context.RUNNING
        self._end_of_jvm: Context | None = None
        """What ended the JVM; None while it lives, as far as is known."""

    @property
    def ended(self) -> bool:
        """Whether the JVM is known to have ended."""
        return self._end_of_jvm is not None

    def has_lost_jvm(self) -> bool:
        """Whether the JVM has died, which nobody wanted; asks no JVM, so any thread may call it."""
        if self._end_of_jvm is not None:
            return self._end_of_jvm is Context.JVM_GONE
        gateway = self._context._gateway  # noqa: SLF001 - no public way
        is_planned = self._java_context is None or self._seen.is_on_purpose
        return not is_planned and is_gone(gateway) and not self._is_terminated

    def context(self, *, stopped: bool | None = None) -> Context:
        """Whether the SparkContext runs, and if not, what stopped it; any thread may call this.

        ``stopped`` is what Spark reports, None to ask Spark. PySpark's ``stop()`` drops its
        reference to the Java context at its end. Until then, while queues drain and the event log
        is written, a thread is inside ``stop()``. A context that stopped by itself leaves the
        reference in place.

        Raises:
            Py4JError: the JVM is gone or refuses to answer.

        """
        java = self._java_context
        if java is None:
            return Context.STOPPED_BY_APPLICATION
        if not (java.sc().isStopped() if stopped is None else stopped):
            return Context.RUNNING
        # stop() may end between the two checks.
        if is_running(self._stop) or self._java_context is None:
            return Context.STOPPED_BY_APPLICATION
        return Context.TERMINATED if self._jvm_shuts_down() else Context.STOPPED

    def poll(self, clock: Callable[[], float]) -> ProbeReport:
        """Poll every run once; the end of the JVM is a report too.

        Raises:
            Py4JError, ConnectionError, EOFError: the JVM does not answer but may not have ended.
            RuntimeError: the probe was released.

        """
        began_at = clock()
        if self._end_of_jvm is None:
            try:
                report = self._poll(began_at, clock)
            except NETWORK_ERRORS:
                if not is_gone(self._context._gateway):  # noqa: SLF001 - no public way
                    raise
                self._end_of_jvm = self._context_at_end()
            else:
                self._seen = report.context
                return report
        return ProbeReport(began_at, clock(), runs=(), context=self._end_of_jvm)

    def release(self) -> None:
        """Remove the listener from Spark, if Spark still exists, and release Spark's objects."""
        with suppress(*THROWN, OSError):
            self._path.release()
        self._active = self._tracked = None
        self._living.clear()

    def _poll(self, began_at: float, clock: Callable[[], float]) -> ProbeReport:
        if self._active is None:
            raise RuntimeError("the probe was released")
        stopped = self._poll_runs(began_at)
        health = self._path.health
        if not stopped:
            # A bus that has stopped with its context has no queue, and gets none.
            check = partial(self._path.check, began_at)
            health = self.details.ask("listeners", check, health)
        context = self.context(stopped=stopped if health.registered else None)
        living = tuple(run.last for run in self._living.values())
        return ProbeReport(
            began_at=began_at,
            at=clock(),
            runs=living + self._ended.report(began_at),
            context=context,
            listener=health,
            scheduler=self._scheduler,
            unowned_tasks=self._unowned_tasks,
            heap=self._heap,
            session_ends=self._session_ends,
        )

    def _poll_runs(self, now: float) -> bool | None:
        """Poll every run once.

        Returns whether the SparkContext is stopped; None if that must be read again, because
        nobody said so, or a run has ended and the context may have stopped since.
        """
        ask = self.details.ask
        living = ask("living_runs", partial(self._living_runs, now), None)
        self._scheduler = None if living is None else living.scheduler
        if living is None:
            self._heap = None
        elif living.heap is not None:
            self._heap = replace(living.heap, at=now)
        if living is not None and living.session_ends is not None:
            ends = list(((self._session_ends or {}) | living.session_ends).items())
            self._session_ends = dict(ends[-MAX_SESSIONS:])
        reported = ask("query_ids", self._read_all_runs, None) if living is None else living.runs
        if reported is None:
            return None
        run_ids = [run.run_id for run in reported.values()]
        tasks = ask("tasks", self._path.tasks, None) or {}
        self._unowned_tasks = tasks[UNOWNED].sums if UNOWNED in tasks else None
        count_jobs = self._path.job_counts
        work = PolledWork(self._tracked, self._jvm, count_jobs, self.details, run_ids, tasks=tasks)
        has_ended = False
        for query_id in dict.fromkeys([*reported, *self._living]):
            run = reported.get(query_id)
            poll = partial(self._poll_query, query_id, run, now, work)
            # One name for all queries: what is missing is remembered by name.
            has_ended |= ask("a query", poll, False)
        return None if has_ended or living is None else living.stopped

    def _living_runs(self, now: float) -> Living | None:
        text = self._path.living_runs()
        if text is None:
            return None
        living = parse_living_runs(text, now)
        unreadable = [key for key, run in living.runs.items() if isinstance(run, UnreadableRun)]
        return replace(living, runs=living.runs | self._read_runs(unreadable))

    def _read_all_runs(self) -> dict[str, ListedRun]:
        return self._read_runs(_UUID.findall(self._active.keySet().toString()))

    def _read_runs(self, query_ids: Iterable[str]) -> dict[str, ListedRun]:
        """Each query's run, read on its own, as one odd detail must not hide a hang."""
        runs: dict[str, ListedRun] = {}
        for query_id in query_ids:
            java = self._active.get(self._uuid.fromString(query_id))
            if java is not None:
                read = partial(read_run, java, partial(identity, self._jvm), self.details)
                runs[query_id] = self.details.ask("a query", read, UnreadableRun("", "refused"))
        return runs

    def _poll_query(
        self, query_id: str, reported: ListedRun | None, now: float, work: PolledWork
    ) -> bool:
        """Poll the query's run; whether one has ended."""
        if isinstance(reported, UnreadableRun) and not reported.run_id:
            raise LookupError(f"{query_id}: {reported.reason}")
        run = self._living.get(query_id)
        has_ended = False
        if run is not None and (reported is None or reported.run_id != run.facts.run_id):
            self._end(query_id, run, now, work)
            run = None
            has_ended = True
        if reported is None:
            return has_ended
        run = run or self._added(query_id, reported.run_id)
        if run is None:
            return has_ended
        if isinstance(reported, LivingRun):
            if run.poll(reported, now, self._closer_after, work):
                return has_ended
            self._end(query_id, run, now, work)
            return True
        raise LookupError(f"{query_id}: {reported.reason}")

    def _added(self, query_id: str, run_id: str) -> SparkRun | None:
        java = self._active.get(self._uuid.fromString(query_id))
        if java is None:
            return None
        run = self._living[query_id] = SparkRun(java, self._jvm, self.details, query_id, run_id)
        self.details.ask("session", lambda: self._path.cover(java), None)
        return run

    def _end(self, query_id: str, run: SparkRun, now: float, work: PolledWork) -> None:
        self._ended.add(run.final_poll(work), now)
        del self._living[query_id]

    def _context_at_end(self) -> Context:
        with suppress(*NETWORK_ERRORS):
            if self.context() is Context.STOPPED_BY_APPLICATION:
                return Context.STOPPED_BY_APPLICATION
        return Context.TERMINATED if self._is_terminated else Context.JVM_GONE

    @property
    def _is_terminated(self) -> bool:
        """Whether a signal has ended the JVM, as far as it could say."""
        terminated = self._seen is Context.TERMINATED or self._path.terminated
        return terminated or was_terminated(self._context._gateway)  # noqa: SLF001 - as above

    @property
    def _java_context(self) -> Any:
        return self._context._jsc  # noqa: SLF001 - no public way to ask

    def _jvm_shuts_down(self) -> bool:
        """Whether the JVM's shutdown hooks run, which SIGTERM and SIGINT start."""
        hooks = getattr(self._context._jvm, SHUTDOWN_HOOKS)  # noqa: SLF001 - no public way
        try:
            return bool(hooks.inShutdown())
        except NETWORK_ERRORS:
            raise
        except THROWN:
            return False
