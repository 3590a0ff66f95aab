"""The probe of a simulated driver, and its checkpoints for the product's own reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from querypulse.listener.checkpoints import LogReader
from querypulse.listener.commit_log import OFFSETS, LogReport, StorageError
from querypulse.listener.failure import SESSION_ENDED
from querypulse.listener.probe_report import (
    Context,
    JobActivity,
    JobCounts,
    ListenerHealth,
    ProbedRun,
    ProbeReport,
    RunFacts,
    SlotUse,
    parse_trigger,
)
from querypulse.listener.source_polls import SourceReport
from querypulse.listener.spark.probe import EndedRuns

from .clock import WALL, Time
from .run import Run
from .signals import Faults
from .spark import folder_of, trigger_text
from .truth import Health

if TYPE_CHECKING:
    from .driver import SimDriver

# -- storage -------------------------------------------------------------------------------------


class SimLogs:
    """The checkpoint of one query: the batches in its two logs."""

    def __init__(self, query_id: str, newest: Mapping[str, Run], faults: Faults) -> None:
        self._query_id = query_id
        self._newest_runs = newest
        self._faults = faults

    def files(self, log: str) -> dict[int, float | None]:
        """The newest hundred batches of a log, and when they were written by the storage's clock."""
        run = self._run()
        written = run.query.checkpoint.written[log]
        newest = run.planned if log == OFFSETS else run.logged
        ids = range(max(0, newest - 99), newest + 1)
        return dict.fromkeys(ids) | {batch_id: WALL + at for batch_id, at in written.items()}

    def begins(self) -> dict[int, dict[str, int]]:
        """Nothing: the simulated sources have no offsets of Kafka."""
        self._run()
        return {}

    def _run(self) -> Run:
        run = self._newest_runs.get(self._query_id)
        if run is None or self._faults.holds("unreadable", run.spec.key):
            raise StorageError("AccessControlException: Permission denied")
        return run


class SimLogReader(LogReader):
    """The product's reader, without pauses."""

    def __init__(
        self,
        newest: Mapping[str, Run],
        faults: Faults,
        latest_probe: Callable[[], ProbeReport | None],
        time: Time,
    ) -> None:
        super().__init__(
            lambda _, query_id: SimLogs(query_id, newest, faults),
            latest_probe,
            lambda: None,
            clock=time,
            wall=time.wall,
        )

    def step(self) -> None:
        self.poke()
        super().step()


# -- probe ---------------------------------------------------------------------------------------


CLOSER_AFTER_SECONDS = 10.0


class Sample(msgspec.Struct):
    """What one poll saw, and what it will show once it is published."""

    at: float
    runs: tuple[ProbedRun, ...] = ()
    context: Context = Context.RUNNING
    dropped: int = 0
    shown: list[tuple[dict[str, float], str, float]] = []
    failed: list[Run] = []


class SimProbe:
    """Polls the simulated Spark; remembers ended runs with the product's own code.

    A poll takes ``seconds``: it shows what Spark was when it began.
    """

    def __init__(self, driver: SimDriver, faults: Faults, seconds: float) -> None:
        self.seconds = seconds
        self.latest: ProbeReport | None = None
        self.answered: dict[str, float] = {}
        """By query: when a poll last showed its true state."""
        self.ends: dict[str, float] = {}
        """By query: the end of the last run whose end a poll has shown."""
        self.failures: dict[str, float] = {}
        """The same for runs that failed."""
        self.failures_shown_at: dict[str, float] = {}
        """By query: when a poll showed that."""
        self.batches: dict[str, float] = {}
        """The same for runs of which a poll showed the batch before the next run began."""
        self.dated: set[str] = set()
        """The queries with a run whose checkpoint could be read when a poll first showed it."""
        self.sources: SourceReport | None = None
        """What the broker has said about the topics of the runs of the last poll."""
        self.topics: dict[str, str] = {}
        """By query: the id of the topic that was polled before any other one."""
        self.missed: dict[str, float] = {}
        """By query: when a poll last lacked its running run."""
        self._time = driver.time
        self._spark = driver.spark
        self._bus = driver.bus
        self._faults = faults
        self._ended = EndedRuns()
        self._logs = SimLogReader(self._spark.newest, faults, lambda: self.latest, self._time)
        self._on_report = driver.step
        self._polls = False
        self._again = False
        self._seen: dict[str, ProbedRun] = {}
        self._facts: dict[str, RunFacts] = {}
        self._in_time: set[str] = set()

    @property
    def log(self) -> LogReport | None:
        return self._logs.latest

    @property
    def answers(self) -> bool:
        paused = self._time.now < self._spark.paused_until
        return not paused and not self._faults.holds("probe_refused", "*")

    def poll(self) -> None:
        """Begin a poll, unless one is under way: then another one follows it."""
        if not self._spark.alive:
            # Its process has ended, whatever else is wrong.
            self._publish(Sample(self._time.now, context=Context.JVM_GONE))
        elif self._time.now >= self._spark.exits_at:
            # So it has here, and its event queue has reported why.
            self._publish(Sample(self._time.now, context=Context.TERMINATED))
        elif self._polls:
            self._again = True
        elif self.answers and not self.seconds:
            self._publish(self._sample())
        elif self.answers:
            self._polls = True
            sample = self._sample()
            self._time.after(self.seconds, lambda: self._arrives(sample))

    def _arrives(self, sample: Sample) -> None:
        """The answer of a poll; a paused JVM or process delays it."""
        if self._time.now < self._spark.paused_until:
            self._time.at(self._spark.paused_until, lambda: self._arrives(sample))
            return
        self._polls, again, self._again = False, self._again, False
        if not self._spark.alive or self._time.now >= self._spark.exits_at:
            return
        self._publish(sample)
        self._on_report()
        if again:
            self.poll()

    def _sample(self) -> Sample:
        sample = Sample(self._time.now, context=self._spark.context, shown=[], failed=[])
        runs = [self._living(run, sample) for run in self._spark.living.values()]
        for run in self._spark.ended_runs:
            # The probe never had the handle of a run that began and ended between two polls.
            if run.run_id in self._seen:
                self._ended.add(self._ended_run(run), self._time.now)
                self._seen.pop(run.run_id)
                self._facts.pop(run.run_id)
                sample.shown.append((self.ends, run.spec.key, run.ended_at))
                if run.exception is not None:
                    sample.failed.append(run)
        self._spark.ended_runs.clear()
        present = tuple(run for run in runs if run is not None)
        sample.runs = (*present, *self._ended.report(self._time.now))
        sample.dropped = self._bus.dropped
        return sample

    def _publish(self, sample: Sample) -> None:
        listener = ListenerHealth(registered=True, dropped_events=sample.dropped)
        self.latest = ProbeReport(sample.at, self._time.now, sample.runs, sample.context, listener)
        for shown, key, at in sample.shown:
            shown[key] = at
        self._in_time |= {run.facts.run_id for run in sample.runs if self._is_newest(run.facts)}
        for run in sample.failed:
            if not run.is_cut_off:
                self.failures[run.spec.key] = run.ended_at
                self.failures_shown_at[run.spec.key] = self._time.now
            if run.run_id in self._in_time:
                self.batches[run.spec.key] = run.ended_at
        if sample.context in (Context.JVM_GONE, Context.TERMINATED) and not sample.runs:
            return
        self._read_logs()
        self._poll_sources()

    def _poll_sources(self) -> None:
        """Ask the broker, after the poll that has shown the runs."""
        polls = {}
        for run in self._spark.living.values():
            source = run.query.source
            if run.spec.polled and run.batches and run.run_id in self._seen:
                self.topics.setdefault(run.spec.key, source.topic_id)
                polls[run.run_id] = {0: source.poll(self._time.now, self._time.wall())}
        self.sources = SourceReport(self._time.now, polls)

    def _is_newest(self, facts: RunFacts) -> bool:
        return self._spark.newest[facts.query_id].run_id == facts.run_id

    def _living(self, run: Run, sample: Sample) -> ProbedRun | None:
        key = run.spec.key
        if self._faults.holds("probe_misses", key):
            sample.shown.append((self.missed, key, self._time.now))
            if run.run_id in self._seen:
                # Once it is listed again, it counts as another run, of which nothing was polled.
                self._seen[run.run_id] = self._listed(run)
            return None
        if run.run_id not in self._seen and not self._faults.holds("unreadable", key):
            self.dated.add(key)
        if self._faults.holds("probe_partial", key):
            # Listed, but it does not say more: the last poll, or only what it is.
            return self._seen.setdefault(run.run_id, self._listed(run))
        if not run.spec.needs_log:
            sample.shown.append((self.answered, key, self._time.now))
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

    def _listed(self, run: Run) -> ProbedRun:
        return ProbedRun(facts=self._facts_of(run), active=True)

    def _work(self, run: Run) -> JobActivity | None:
        before = self._seen.get(run.run_id)
        if not run.busy or self._time.now - run.busy_since < CLOSER_AFTER_SECONDS:
            return before.work if before is not None else None
        active = 0 if run.fans_out or run.computes else 1
        own = JobCounts(run.jobs, active, run.tasks, run.tasks_active)
        pool = self._spark.pool_tasks
        return JobActivity(
            own=own,
            unowned=JobCounts(pool, 1, pool),
            counted=True,
            slots=self._slots(run),
            python_line="job.py:12 in call_api",
            python_cpu_seconds=run.cpu_seconds,
        )

    def _slots(self, run: Run) -> SlotUse:
        if self._time.now < self._spark.bare_until:
            return SlotUse(0)
        if not run.waits_for_slots:
            return SlotUse(4)
        holding = self._spark.living.get(run.query.holder)
        # A query whose batch is slow, or else another application's.
        living = self._spark.living.values()
        slow = (other for other in living if other.query.truth.health is Health.SLOW)
        holder = next((other.query_id for other in slow if other is not run), "of another query")
        if holding is not None and holding.query.truth.health is Health.SLOW:
            holder = holding.query_id
        return SlotUse(4, 4, holder, 4)

    def _ended_run(self, run: Run) -> ProbedRun:
        return ProbedRun(
            facts=self._facts_of(run),
            active=False,
            batch_id=None if run.spec.is_continuous else run.batch_id,
            exception=run.exception,
            error_class=SESSION_ENDED if run.has_lost_session else None,
        )

    def _facts_of(self, run: Run) -> RunFacts:
        facts = self._facts.get(run.run_id)
        if facts is None:
            facts = self._facts[run.run_id] = RunFacts(
                query_id=run.query_id,
                run_id=run.run_id,
                name=run.spec.name,
                trigger=parse_trigger(trigger_text(run)),
                sink="noop",
                checkpoint=folder_of(run),
                session=run.spec.session,
                async_progress=run.spec.log_every > 0.0,
                log_interval_seconds=run.spec.log_every,
            )
        return facts

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
