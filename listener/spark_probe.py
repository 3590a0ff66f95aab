"""The second witness: asks Spark about all its queries.

One SparkContext holds all sessions' queries in ``SharedState.activeStreamingQueries``;
a run's ``StreamExecution`` still answers after its death. Private but stable in Spark
3.5 to 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec.structs import replace
from py4j.protocol import Py4JError

from .details import Details
from .health_listener import HealthListener
from .idle_progress import IdleProgress
from .living_runs import LivingRun
from .probing import Context, ListenerHealth, ProbedRun, ProbeReport
from .spark_execution import SparkExecution
from .spark_listeners import SparkListeners, count_dropped_events
from .spark_living_runs import SparkLivingRuns
from .spark_work import SparkWork

KEEP_ENDED_RUNS = 256
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _Run:
    """A cached handle of one run and what the last look saw."""

    def __init__(self, execution: SparkExecution, query_id: str) -> None:
        self.execution = execution
        self.facts = execution.facts(query_id)
        self.last = ProbedRun(self.facts, active=True)
        self.busy_since: float | None = None
        self.looked_closely_at = 0.0
        self.idle_progress = IdleProgress()

    def is_over(self, told: LivingRun | None) -> bool:
        """Whether ``told`` of its query is another run, or this one says that it has ended."""
        if told is not None:
            return told.run_id != self.facts.run_id
        return not self.execution.java.isActive()

    def tell(self, told: LivingRun | None) -> LivingRun | None:
        """What it does: as was ``told`` of its query, else as it says; None when it has ended."""
        if told is not None and told.run_id == self.facts.run_id:
            return told if told.active else None
        return self.execution.tell(self.facts, self.last.batch_id)


class SparkProbe:
    """Looks at the queries of one classic SparkContext; used by one thread.

    What they do is one question, whatever their number; a Spark that does not answer it is
    asked of each of them.

    A run busy with one thing for ``closer_after_seconds`` is looked at closely, again and
    again at half that interval: it must be well below the shortest stall window.
    """

    def __init__(
        self,
        spark: Any,
        listener: HealthListener,
        closer_after_seconds: float,
    ) -> None:
        self.details = Details()
        self._closer_after = closer_after_seconds
        self._context = spark.sparkContext
        self._jvm = self._context._jvm  # noqa: SLF001 - no public way to the JVM
        self._java_context = self._context._jsc  # noqa: SLF001 - gone after stop()
        self._spark_context = self._java_context.sc()
        java_session = spark._jsparkSession  # noqa: SLF001 - no public way to all sessions
        self._active = java_session.sharedState().activeStreamingQueries()
        self._uuid = getattr(self._jvm, "java.util.UUID")
        self._spark_major = int(spark.version.partition(".")[0])
        self._living_runs = SparkLivingRuns(
            self._jvm, self._active, self._spark_major, self.details
        )
        self._living: dict[str, _Run] = {}
        self._ended: dict[str, ProbedRun] = {}
        self._listeners = SparkListeners(listener, java_session.streams(), self._dropped_events)
        self._work = SparkWork(self._java_context, self._jvm, self.details)

    def context(self) -> Context:
        """Whether the SparkContext runs, and if not, whether the application stopped it.

        PySpark's own ``stop()`` drops its reference to the Java context at the end;
        a context that died by itself leaves it in place.
        """
        if self._context._jsc is None:  # noqa: SLF001 - no public way to ask
            return Context.STOPPED_BY_APPLICATION
        return Context.STOPPED if self._spark_context.isStopped() else Context.RUNNING

    def look(self, clock: Callable[[], float]) -> ProbeReport:
        """Look at every run once.

        Raises:
            Py4JError: the JVM is gone or refused; the next look starts afresh.

        """
        began_at = clock()
        told = self._tell()
        self._meet_new_runs(told)
        for query_id, run in list(self._living.items()):
            now = run.tell(told.get(query_id))
            if now is None:
                del self._living[query_id]
                self._keep_ended(_last_words(run))
            else:
                run.last = self._look_at(run, now, began_at)
        living = tuple(run.last for run in self._living.values())
        return ProbeReport(
            began_at=began_at,
            at=clock(),
            runs=living + tuple(self._ended.values()),
            context=self.context(),
            listener=self._check_listeners(began_at),
        )

    def release(self) -> None:
        """Take the listener out of Spark again, if there still is a Spark."""
        with suppress(Py4JError, OSError):
            self._listeners.remove()

    def _tell(self) -> Mapping[str, LivingRun | None]:
        """By query id what its run does; None where the run itself must be asked."""
        told = self._living_runs.tell()
        if told is None:
            return dict.fromkeys(_UUID.findall(self._active.keySet().toString()))
        return told

    def _meet_new_runs(self, told: Mapping[str, LivingRun | None]) -> None:
        for query_id, now in told.items():
            known = self._living.get(query_id)
            if known is not None and not known.is_over(now):
                continue
            java = self._active.get(self._uuid.fromString(query_id))
            if java is None:
                continue
            if known is not None:
                self._keep_ended(_last_words(known))
            self._meet(query_id, java)

    def _meet(self, query_id: str, java: Any) -> None:
        execution = SparkExecution(java, self._jvm, self._spark_major, self.details)
        self._living[query_id] = _Run(execution, query_id)
        self.details.ask("session", lambda: self._listeners.cover(java), None)

    def _look_at(self, run: _Run, told: LivingRun, now: float) -> ProbedRun:
        # Under Continuous the id is the epoch begun, which tells nothing of those committed.
        seen = ProbedRun(
            facts=run.facts,
            active=True,
            message=told.status.message,
            trigger_active=told.status.is_trigger_active,
            data_available=told.status.is_data_available,
            batch_id=told.batch_id,
            committed_offsets=told.offsets or run.last.committed_offsets,
        )
        idle_progress = run.idle_progress.look(seen, told.idle_progress)
        return self._look_closer(run, replace(seen, idle_progress=idle_progress), now)

    def _look_closer(self, run: _Run, seen: ProbedRun, now: float) -> ProbedRun:
        """Look at jobs, tasks and stacks of a run that is busy with one thing for long."""
        busy = seen.planning or seen.processing
        if not busy or seen.batch_id != run.last.batch_id:
            run.busy_since = now if busy else None
            return seen
        if run.busy_since is None:
            run.busy_since = now
        work, mark = run.last.work, run.last.last_progress_mark
        overdue = now - run.busy_since >= self._closer_after
        if overdue and now - run.looked_closely_at >= self._closer_after / 2:
            run.looked_closely_at = now
            work = self._work.look(run.execution.java, run.facts.run_id)
            mark = run.execution.last_progress_mark(mark)
        return replace(seen, work=work, last_progress_mark=mark)

    def _keep_ended(self, run: ProbedRun) -> None:
        self._ended[run.facts.run_id] = run
        while len(self._ended) > KEEP_ENDED_RUNS:
            del self._ended[next(iter(self._ended))]

    def _check_listeners(self, now: float) -> ListenerHealth:
        ask, listeners = self.details.ask, self._listeners
        return ask("listeners", lambda: listeners.check(now), listeners.health)

    def _dropped_events(self) -> int:
        known = self._listeners.health.dropped_events
        return self.details.ask(
            "dropped_events", lambda: count_dropped_events(self._java_context), known
        )


def _last_words(run: _Run) -> ProbedRun:
    exception, error_class = run.execution.death()
    batch_id = run.last.batch_id
    if not run.facts.trigger.is_continuous:
        # The last look may have seen an earlier batch than the one it died in.
        batch_id = run.execution.batch_id(batch_id)
    return replace(
        run.last,
        active=False,
        batch_id=batch_id,
        trigger_active=False,
        idle_progress=None,
        exception=exception,
        error_class=error_class,
    )
