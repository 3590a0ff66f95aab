"""The second signal: polls all queries of a Spark application."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from ..probe import Context, IdleProgress, ListenerHealth, ProbedRun, ProbeReport, RunFacts
from ..python_frames import is_running
from .event_paths import EventPath
from .execution import LivingRun, LivingRuns, SparkExecution, SparkLivingRuns, UnreadRun
from .jobs import PolledWork, SparkWork
from .jvm import NETWORK_ERRORS, THROWN, OptionalCalls, has_execution_context

# -- spark run --------------------------------------------------------------------------------
# One active run of a query: its handle and its last poll.


class SparkRun:
    """Polls one run; ``last`` is the newest poll, kept when a poll fails."""

    def __init__(self, execution: SparkExecution, facts: RunFacts, details: OptionalCalls) -> None:
        self.facts = facts
        self.last = ProbedRun(facts, active=True)
        self._execution = execution
        self._ask = details.ask
        self._session: int | None = None
        self._busy_since: float | None = None
        self._polled_closely_at = 0.0
        self._idle_progress = IdleProgress()

    def is_over(self, reported: LivingRun | UnreadRun) -> bool:
        """Whether its query now reports another run, or this run has ended."""
        if reported.run_id:
            return reported.run_id != self.facts.run_id
        return self._ask("is_active", self._execution.is_over, False)

    def current(self, reported: LivingRun | UnreadRun | None) -> LivingRun | None:
        """The current status, from ``reported`` or from the run itself; None when it has ended.

        Raises:
            Exception: the run must be polled on its own, and Spark refuses to answer.

        """
        replaced = reported is None or (
            bool(reported.run_id) and reported.run_id != self.facts.run_id
        )
        if isinstance(reported, LivingRun) and not replaced:
            return reported if reported.active else None
        # Spark no longer lists the run, so a refused answer means that it has ended.
        if replaced and self._ask("is_active", self._execution.is_over, True):
            return None
        return self._execution.living_run(self.facts, self.last.batch_id)

    def poll(self, reported: LivingRun, now: float, closer_after: float, work: PolledWork) -> None:
        """Apply the status; also poll jobs and stacks once it is busy with one batch for long."""
        # For a continuous query the id is the epoch begun, which does not show commits.
        seen = ProbedRun(
            facts=self.facts,
            active=True,
            message=reported.status.message,
            trigger_active=reported.status.is_trigger_active,
            data_available=reported.status.is_data_available,
            stopping=reported.stopping,
            batch_id=reported.batch_id,
            committed_offsets=reported.offsets or self.last.committed_offsets,
        )
        self._session = self._session if reported.session is None else reported.session
        idle_progress = self._idle_progress.poll(seen, reported.idle_progress)
        seen = replace(seen, idle_progress=idle_progress)
        self.last = self._poll_closer(seen, now, closer_after, work, reported.cpu_seconds)

    def final_poll(self) -> ProbedRun:
        """The poll of a run that has ended: why, and in which batch."""
        exception, error_class = self._execution.death()
        batch_id, committed, available = self.last.batch_id, self.last.committed_offsets, ""
        if not self.facts.trigger.is_continuous:
            # The last poll may show an earlier batch than the one that failed.
            batch_id = self._execution.batch_id(batch_id)
            committed = self._execution.committed_offsets() or committed
            available = self._execution.available_offsets()
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
            java = self._execution.java
            if self._session is None:
                self._session = work.session_of(java)
            details = work.of(java, self.facts, self._session)
            closer = replace(details, jvm_cpu_seconds=cpu_seconds)
            mark = self._execution.last_progress_mark(mark)
            if not self.facts.trigger.is_continuous:
                available = self._execution.available_offsets()
        return replace(seen, work=closer, last_progress_mark=mark, available_offsets=available)


# -- spark queries ----------------------------------------------------------------------------
# All queries of one SparkContext, in all sessions, as Spark reports them.
#
# ``SharedState.activeStreamingQueries`` holds them; a run's ``StreamExecution`` still answers after
# the run has ended. Private, but stable in Spark 3.5 to 4.3.


KEEP_REPORTED = 256
"""How many ended runs are kept after they were reported."""
KEEP_SECONDS = 10.0
"""How long each one is kept: only the newest report is read, so one may be missed."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class EndedRuns:
    """Keeps each run until it is reported, and the newest of the reported runs."""

    def __init__(self) -> None:
        self._runs: dict[str, ProbedRun] = {}
        self._reported_at: dict[str, float] = {}
        self.has_news = False
        """Whether a run was added since the last report."""

    def add(self, run: ProbedRun) -> None:
        """Add the last poll of a run."""
        self._runs[run.facts.run_id] = run
        self.has_news = True

    def report(self, now: float) -> tuple[ProbedRun, ...]:
        """All runs that are kept, oldest first; ``now`` is monotonic seconds."""
        self.has_news = False
        runs = tuple(self._runs.values())
        for run_id in [run.facts.run_id for run in runs[:-KEEP_REPORTED]]:
            if now - self._reported_at.setdefault(run_id, now) >= KEEP_SECONDS:
                del self._runs[run_id], self._reported_at[run_id]
        return runs


class SparkQueries:
    """Polls all queries with one call, whatever their number.

    If Spark refuses that call, each run is polled on its own, and so is a run that Spark cannot
    describe. A run that does not answer keeps its last poll and does not affect the others.
    """

    def __init__(
        self, spark: Any, path: EventPath, closer_after_seconds: float, details: OptionalCalls
    ) -> None:
        context = spark.sparkContext
        self._jvm = context._jvm  # noqa: SLF001 - no public way to the JVM
        java_context = context._jsc  # noqa: SLF001 - no public way to the status tracker
        java_session = spark._jsparkSession  # noqa: SLF001 - no public way to all sessions
        self._active = java_session.sharedState().activeStreamingQueries()
        self._uuid = getattr(self._jvm, "java.util.UUID")
        self._has_context = has_execution_context(spark.version)
        self._path = path
        self._closer_after = closer_after_seconds
        self._details = details
        self._living_runs = SparkLivingRuns(
            self._jvm, self._active, java_context.sc(), details, has_context=self._has_context
        )
        self._work = SparkWork(java_context, self._jvm, path.job_counts, details)
        self._living: dict[str, SparkRun] = {}
        self._ended = EndedRuns()

    def poll(self, now: float) -> bool | None:
        """Poll every run once; ``now`` is monotonic seconds.

        Returns whether the SparkContext is stopped; None if that must be read again, because a
        run has ended and the context may have stopped since.

        Raises:
            Py4JNetworkError, ConnectionError, EOFError: the JVM does not answer.

        """
        reported = self._report(now)
        for query_id, about in reported.runs.items():
            self._contain(query_id, self._add_if_new, query_id, about)
        work = self._work.poll([run.facts.run_id for run in self._living.values()])
        for query_id in list(self._living):
            self._contain(
                query_id, self._poll_run, query_id, reported.runs.get(query_id), now, work
            )
        return None if self._ended.has_news else reported.context_stopped

    def report(self, now: float) -> tuple[ProbedRun, ...]:
        """All runs, active and recently ended."""
        return tuple(run.last for run in self._living.values()) + self._ended.report(now)

    def _report(self, now: float) -> LivingRuns:
        """The status of each query's run, from one answer for all of them."""
        reported = self._living_runs.ask(now)
        if reported is not None:
            return reported
        listed = self._details.ask("query_ids", self._query_ids, list(self._living))
        return LivingRuns(dict.fromkeys(listed, UnreadRun()))

    def _query_ids(self) -> list[str]:
        return _UUID.findall(self._active.keySet().toString())

    def _contain(self, query_id: str, step: Callable[..., None], *args: object) -> None:
        """Contain errors of one run, so that they do not affect the others."""
        self._details.ask(f"run of query {query_id}", lambda: step(*args), None)

    def _add_if_new(self, query_id: str, about: LivingRun | UnreadRun) -> None:
        if isinstance(about, UnreadRun) and about.reason:
            self._details.miss("living_run", f"query {query_id}: {about.reason}")
        known = self._living.get(query_id)
        if known is not None and not known.is_over(about):
            return
        java = self._active.get(self._uuid.fromString(query_id))
        if java is None:
            return
        execution = SparkExecution(java, self._jvm, self._details, has_context=self._has_context)
        facts = execution.facts(query_id, about.run_id)
        if known is not None:
            self._ended.add(known.final_poll())
        self._living[query_id] = SparkRun(execution, facts, self._details)
        self._details.ask("session", lambda: self._path.cover(java), None)

    def _poll_run(
        self, query_id: str, about: LivingRun | UnreadRun | None, now: float, work: PolledWork
    ) -> None:
        run = self._living[query_id]
        reported = run.current(about)
        if reported is None:
            self._ended.add(run.final_poll())
            del self._living[query_id]
        else:
            run.poll(reported, now, self._closer_after, work)


# -- spark context ----------------------------------------------------------------------------
# Whether the SparkContext runs, and if not, whether the application stopped it.


SHUTDOWN_HOOKS = "org.apache.spark.util.ShutdownHookManager"


class SparkContextState:
    """The state of one classic SparkContext; any thread may call it, also after ``release``."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._java: Any = context._jsc.sc()  # noqa: SLF001 - no public way to ask
        self._stop = inspect.unwrap(type(context).stop).__code__
        self._hooks: Any = getattr(context._jvm, SHUTDOWN_HOOKS)  # noqa: SLF001 - no public way

    def ask(self, *, stopped: bool | None = None) -> Context:
        """The current state; ``stopped`` is what Spark reports, None to ask Spark.

        PySpark's ``stop()`` drops its reference to the Java context at its end. Until then, while
        queues drain and the event log is written, a thread is inside ``stop()``. A context that
        stopped by itself leaves the reference in place.

        Raises:
            Py4JError: the JVM is gone or refuses to answer.

        """
        if self._is_dropped():
            return Context.STOPPED_BY_APPLICATION
        if not (self._is_stopped() if stopped is None else stopped):
            return Context.RUNNING
        # stop() may end between the two checks.
        if is_running(self._stop) or self._is_dropped():
            return Context.STOPPED_BY_APPLICATION
        return Context.TERMINATED if self._jvm_shuts_down() else Context.STOPPED

    def release(self) -> None:
        """Release the Java context."""
        self._java = self._hooks = None

    def _jvm_shuts_down(self) -> bool:
        """Whether the JVM's shutdown hooks run, which SIGTERM and SIGINT start."""
        if self._hooks is None:
            return False
        try:
            return bool(self._hooks.inShutdown())
        except NETWORK_ERRORS:
            raise
        except THROWN:
            return False

    def _is_stopped(self) -> bool:
        java = self._java
        if java is None:
            owner = self._context._jsc  # noqa: SLF001 - no public way to ask
            java = None if owner is None else owner.sc()
        return java is None or bool(java.isStopped())

    def _is_dropped(self) -> bool:
        return self._context._jsc is None  # noqa: SLF001 - no public way to ask


# -- spark probe ------------------------------------------------------------------------------


class SparkProbe:
    """Polls the queries of one classic SparkContext; used by one thread.

    Once a run is busy with the same batch for ``closer_after_seconds``, its jobs and stacks are
    polled too, every half of that interval. It must be far below the shortest stall window.
    """

    def __init__(self, spark: Any, path: EventPath, closer_after_seconds: float) -> None:
        self.details = OptionalCalls()
        self._path = path
        self._context = SparkContextState(spark.sparkContext)
        self._queries: SparkQueries | None = SparkQueries(
            spark, path, closer_after_seconds, self.details
        )
        self._listener = ListenerHealth()

    def context(self) -> Context:
        """Whether the SparkContext runs, and if not, what stopped it; any thread may call this.

        Raises:
            Py4JError: the JVM is gone or refuses to answer.

        """
        return self._context.ask()

    def poll(self, clock: Callable[[], float]) -> ProbeReport:
        """Poll every run once.

        Raises:
            Py4JError, ConnectionError, EOFError: the JVM is gone or refuses to answer.
            RuntimeError: the probe was released.

        """
        if self._queries is None:
            raise RuntimeError("the probe was released")
        began_at = clock()
        stopped = self._queries.poll(began_at)
        self._listener = self.details.ask(
            "listeners", lambda: self._path.check(began_at), self._listener
        )
        context = self._context.ask(stopped=stopped)
        return ProbeReport(
            began_at=began_at,
            at=clock(),
            runs=self._queries.report(began_at),
            context=context,
            listener=self._listener,
        )

    def release(self) -> None:
        """Remove the listener from Spark, if Spark still exists, and release Spark's objects."""
        with suppress(*THROWN, OSError):
            self._path.release()
        self._queries = None
        self._context.release()
