"""The second signal: polls all queries of a Spark application."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ..probe import Context, ListenerHealth, ProbedRun, ProbeReport
from ..python_frames import is_running
from .event_paths import EventPath
from .execution import Reported, SparkRun, UnreadRun, parse_living_runs
from .jobs import PolledWork, SparkWork
from .jvm import (
    NETWORK_ERRORS,
    THROWN,
    OptionalCalls,
    compile_in_driver,
    is_gone,
)

KEEP_REPORTED = 256
"""How many ended runs are kept after they were reported."""
KEEP_SECONDS = 10.0
"""How long each one is kept: only the newest report is read, so one may be missed."""
RETRY_SECONDS = 60.0
"""How long each run is polled on its own after Spark has refused to report all at once."""
SHUTDOWN_HOOKS = "org.apache.spark.util.ShutdownHookManager"
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
    """Polls all queries of one SparkContext, in all sessions, with one call.

    Py4J needs six commands per run, and each costs time in the JVM and in Python. So a small Java
    class in the driver's JVM makes the calls. If Spark refuses it, each run is polled on its own,
    and so is a run that it cannot describe. A run that does not answer keeps its last poll and does
    not affect the others.

    ``SharedState.activeStreamingQueries`` is private, but stable in Spark 3.5 to 4.3.
    """

    def __init__(
        self, spark: Any, path: EventPath, closer_after_seconds: float, details: OptionalCalls
    ) -> None:
        context = spark.sparkContext
        self._jvm = context._jvm  # noqa: SLF001 - no public way to the JVM
        java_context = context._jsc  # noqa: SLF001 - no public way to the status tracker
        java_session = spark._jsparkSession  # noqa: SLF001 - no public way to all sessions
        self._active = java_session.sharedState().activeStreamingQueries()
        self._context = java_context.sc()
        self._uuid = getattr(self._jvm, "java.util.UUID")
        self._path = path
        self._closer_after = closer_after_seconds
        self._details = details
        self._java: Any = None
        """``LivingRuns.java``, compiled at first use."""
        self._refused_at: float | None = None
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
        reported, stopped = self._report(now)
        for query_id, run in reported.items():
            self._contain(query_id, self._add_if_new, query_id, run)
        work = self._work.poll([run.facts.run_id for run in self._living.values()])
        for query_id in list(self._living):
            self._contain(query_id, self._poll_run, query_id, reported.get(query_id), now, work)
        return None if self._ended.has_news else stopped

    def report(self, now: float) -> tuple[ProbedRun, ...]:
        """All runs, active and recently ended."""
        return tuple(run.last for run in self._living.values()) + self._ended.report(now)

    def _report(self, now: float) -> tuple[Mapping[str, Reported], bool | None]:
        """Each query's run, and whether the SparkContext is stopped, None if nobody asked."""
        if self._refused_at is None or now - self._refused_at >= RETRY_SECONDS:
            answer = self._details.ask("living_runs", self._living_runs, None)
            self._refused_at = now if answer is None else None
            if answer is not None:
                return answer
        listed = self._details.ask("query_ids", self._query_ids, list(self._living))
        return dict.fromkeys(listed, UnreadRun()), None

    def _living_runs(self) -> tuple[dict[str, Reported], bool]:
        if self._java is None:
            self._java = compile_in_driver(self._jvm, "LivingRuns").newInstance()
        return parse_living_runs(str(self._java.ask(self._active, self._context)))

    def _query_ids(self) -> list[str]:
        return _UUID.findall(self._active.keySet().toString())

    def _contain(self, query_id: str, step: Callable[..., None], *args: object) -> None:
        """Contain errors of one run, so that they do not affect the others."""
        self._details.ask(f"run of query {query_id}", lambda: step(*args), None)

    def _add_if_new(self, query_id: str, reported: Reported) -> None:
        if isinstance(reported, UnreadRun) and reported.reason:
            self._details.miss("living_run", f"query {query_id}: {reported.reason}")
        previous = self._living.get(query_id)
        if previous is not None and not previous.is_over(reported):
            return
        java = self._active.get(self._uuid.fromString(query_id))
        if java is None:
            return
        run = SparkRun(java, self._jvm, self._details, query_id, reported.run_id)
        if previous is not None:
            self._ended.add(previous.final_poll())
        self._living[query_id] = run
        self._details.ask("session", lambda: self._path.cover(java), None)

    def _poll_run(
        self, query_id: str, reported: Reported | None, now: float, work: PolledWork
    ) -> None:
        run = self._living[query_id]
        current = run.current(reported)
        if current is None:
            self._ended.add(run.final_poll())
            del self._living[query_id]
        else:
            run.poll(current, now, self._closer_after, work)


class SparkProbe:
    """Polls the queries of one classic SparkContext; used by one thread.

    Once a run is busy with the same batch for ``closer_after_seconds``, its jobs and stacks are
    polled too, every half of that interval. It must be far below the shortest stall window.

    A JVM that has ended is reported, and not polled again.
    """

    def __init__(self, spark: Any, path: EventPath, closer_after_seconds: float) -> None:
        self.details = OptionalCalls()
        self._path = path
        self._context = spark.sparkContext
        self._gateway = self._context._gateway  # noqa: SLF001 - no public way to the JVM
        self._stop = inspect.unwrap(type(self._context).stop).__code__
        self._queries: SparkQueries | None = SparkQueries(
            spark, path, closer_after_seconds, self.details
        )
        self._listener = ListenerHealth()
        self._seen = Context.RUNNING
        self._end: Context | None = None
        """What ended the JVM; None while it lives, as far as is known."""

    @property
    def ended(self) -> bool:
        """Whether the JVM is known to have ended."""
        return self._end is not None

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
        if self._end is None:
            try:
                report = self._poll(began_at, clock)
            except NETWORK_ERRORS:
                if not is_gone(self._gateway):
                    raise
                self._end = self._context_at_end()
            else:
                self._seen = report.context
                return report
        return ProbeReport(began_at, clock(), runs=(), context=self._end)

    def release(self) -> None:
        """Remove the listener from Spark, if Spark still exists, and release Spark's objects."""
        with suppress(*THROWN, OSError):
            self._path.release()
        self._queries = None

    def _poll(self, began_at: float, clock: Callable[[], float]) -> ProbeReport:
        if self._queries is None:
            raise RuntimeError("the probe was released")
        stopped = self._queries.poll(began_at)
        self._listener = self.details.ask(
            "listeners", lambda: self._path.check(began_at), self._listener
        )
        context = self.context(stopped=stopped)
        return ProbeReport(
            began_at=began_at,
            at=clock(),
            runs=self._queries.report(began_at),
            context=context,
            listener=self._listener,
        )

    def _context_at_end(self) -> Context:
        with suppress(*NETWORK_ERRORS):
            if self.context() is Context.STOPPED_BY_APPLICATION:
                return Context.STOPPED_BY_APPLICATION
        terminated = self._seen is Context.TERMINATED or self._path.terminated
        return Context.TERMINATED if terminated else Context.JVM_GONE

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
