"""The probe of a simulated driver."""

from __future__ import annotations

from querypulse.listener.commit_log import LogReport
from querypulse.listener.job_counts import JobCounts, SlotUse
from querypulse.listener.probing import (
    Context,
    JobActivity,
    ListenerHealth,
    ProbedRun,
    ProbeReport,
    RunFacts,
    parse_trigger,
)
from querypulse.listener.spark_queries import EndedRuns

from .clock import Time
from .run import Run
from .signals import Faults, SimBus
from .spark import SimSpark, trigger_text
from .storage import SimLogReader

CLOSER_AFTER_SECONDS = 10.0


class SimProbe:
    """Polls the simulated Spark; remembers ended runs with the product's own code."""

    def __init__(self, time: Time, spark: SimSpark, bus: SimBus, faults: Faults) -> None:
        self.latest: ProbeReport | None = None
        self.answered: dict[str, float] = {}
        """By query: when a poll last showed its true state."""
        self.ends: dict[str, float] = {}
        """By query: the end of the last run whose end a poll has shown."""
        self.failures: dict[str, float] = {}
        """The same for runs that failed."""
        self.dated: set[str] = set()
        """The queries with a run whose checkpoint could be read when a poll first showed it."""
        self._time = time
        self._spark = spark
        self._bus = bus
        self._faults = faults
        self._ended = EndedRuns()
        self._logs = SimLogReader(spark.living, faults, lambda: self.latest, time)
        self._seen: dict[str, ProbedRun] = {}
        self._facts: dict[str, RunFacts] = {}

    @property
    def log(self) -> LogReport | None:
        """The newest report of the checkpoints."""
        return self._logs.latest

    @property
    def answers(self) -> bool:
        """Whether the JVM answers now."""
        paused = self._time.now < self._spark.paused_until
        return not paused and not self._faults.holds("probe_refused", "*")

    def poll(self) -> None:
        """Poll once; if the JVM does not answer, the newest report stays."""
        if not self._spark.alive:
            # Its process has ended, whatever else is wrong.
            self._publish((), Context.JVM_GONE)
            return
        if self._time.now >= self._spark.exits_at:
            # So it has here, and its event queue has reported why.
            self._publish((), Context.TERMINATED)
            return
        if not self.answers:
            return
        runs = [self._living(run) for run in self._spark.living.values()]
        for run in self._spark.ended_runs:
            # The probe never had the handle of a run that began and ended between two polls.
            if run.run_id in self._seen:
                self._ended.add(self._ended_run(run))
                self._seen.pop(run.run_id)
                self._facts.pop(run.run_id)
                self.ends[run.spec.key] = run.ended_at
                if run.exception is not None:
                    self.failures[run.spec.key] = run.ended_at
        self._spark.ended_runs.clear()
        present = tuple(run for run in runs if run is not None)
        self._publish((*present, *self._ended.report(self._time.now)), self._spark.context)
        self._read_logs()

    def _publish(self, runs: tuple[ProbedRun, ...], context: Context) -> None:
        now = self._time.now
        listener = ListenerHealth(registered=True, dropped_events=self._bus.dropped)
        self.latest = ProbeReport(now, now, runs, context, listener)

    def _living(self, run: Run) -> ProbedRun | None:
        key = run.spec.key
        if self._faults.holds("probe_misses", key):
            return None
        if self._faults.holds("probe_partial", key):
            return self._seen.get(run.run_id)
        if not run.spec.needs_log:
            self.answered[key] = self._time.now
        if run.run_id not in self._seen and not self._faults.holds("unreadable", key):
            self.dated.add(key)
        probed = self._seen[run.run_id] = ProbedRun(
            facts=self._facts_of(run),
            active=True,
            message=run.message,
            trigger_active=run.busy,
            data_available=run.data,
            batch_id=None if run.spec.is_continuous else run.batch_id,
            work=self._work(run),
        )
        return probed

    def _work(self, run: Run) -> JobActivity | None:
        before = self._seen.get(run.run_id)
        if not run.busy or self._time.now - run.busy_since < CLOSER_AFTER_SECONDS:
            return before.work if before is not None else None
        own = JobCounts(run.jobs, 0 if run.fans_out else 1, run.tasks, run.tasks_active)
        pool = self._spark.pool_tasks
        slots = SlotUse(4, 4, "of another query", 4) if run.waits_for_slots else SlotUse(4)
        return JobActivity(own=own, unowned=JobCounts(pool, 1, pool), counted=True, slots=slots)

    def _ended_run(self, run: Run) -> ProbedRun:
        return ProbedRun(
            facts=self._facts_of(run),
            active=False,
            batch_id=None if run.spec.is_continuous else run.batch_id,
            exception=run.exception,
        )

    def _facts_of(self, run: Run) -> RunFacts:
        known = self._facts.get(run.run_id)
        if known is None:
            known = self._facts[run.run_id] = RunFacts(
                query_id=run.query_id,
                run_id=run.run_id,
                name=run.spec.name,
                trigger=parse_trigger(trigger_text(run)),
                sink="noop",
                checkpoint=f"/checkpoints/{run.query_id[:8]}",
                session=run.spec.session,
                async_progress=run.spec.log_every > 0.0,
                log_interval_seconds=run.spec.log_every,
            )
        return known

    def _read_logs(self) -> None:
        """Read the logs; a query that needs its log counts as seen when both show it."""
        self._logs.step()
        unreadable = self.log.unreadable if self.log is not None else {}
        for run in self._spark.living.values():
            hidden = any(
                self._faults.holds(kind, run.spec.key) for kind in ("probe_misses", "probe_partial")
            )
            if run.spec.needs_log and run.run_id not in unreadable and not hidden:
                self.answered[run.spec.key] = self._time.now
