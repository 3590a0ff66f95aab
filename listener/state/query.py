"""All state of one query, as frozen records, and what follows from it alone.

Times are monotonic seconds.
"""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec.structs import replace

from ..commit_log import LoggedBatches, SinkLog, StartingPoint
from ..events import Progress, Started
from ..failure import Failure
from ..offsets import behind
from ..probe_report import JobActivity, Moves, ProbedRun, RunFacts, Trigger, parse_trigger
from ..source_polls import SourcePoll
from .flow import Datasets
from .inputs import SourceInput
from .positions import LastRead, Reading
from .sources import PolledSource
from .trends import Trends

CLOCKS_DIFFER_SECONDS = 5.0
"""The clocks of the storage and of this machine may differ by this much."""
DAY_HOURS = 24
RECENT_BATCHES = 30
BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Upper bounds in seconds of the batch-duration histogram."""


class Outcome(str, Enum):
    """How a run ended."""

    FAILED = "failed"
    STOPPED = "stopped"
    COMPLETED = "completed"


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The end of a run and the signal that showed it first."""

    at: float
    outcome: Outcome
    signal: str
    failure: Failure | None = None


class Totals(msgspec.Struct, frozen=True, gc=False):
    """Counters that continue across runs, so that Prometheus never sees them decrease."""

    commits: int = 0
    input_rows: int = 0
    output_rows: int = 0
    late_rows: int = 0
    restarts: int = 0
    failed: int = 0
    stopped: int = 0
    completed: int = 0
    batch_buckets: tuple[int, ...] = (0,) * (len(BUCKETS) + 1)
    batch_seconds: float = 0.0


class InFlight(msgspec.Struct, frozen=True, gc=False):
    """What a busy run is doing: a batch, or (``batch_id`` None) planning one.

    ``moved_at`` is when its tasks, or the thread that runs it, last made progress.
    """

    since: float
    moved_at: float
    batch_id: int | None
    moves: Moves = Moves.TASKS
    """What made the last progress."""
    jvm_cpu_seconds: float | None = None
    """The CPU time that the run's thread in the JVM had used by then."""
    tried_at: float | None = None
    """When that thread last used too little CPU time for work, such as to try again for a lock."""
    delayed_at: float | None = None
    """When a task of it last ran, or its jobs last waited for executors or slots."""
    waited_at: float | None = None
    """When its jobs last waited for executors or slots ..."""
    without_executors_at: float | None = None
    """... and when for executors."""
    jobs_before: int | None = None
    """How many jobs of the query had started when this first took long; only counted ones."""


UNKNOWN_BATCH = -1


class RunFailure(msgspec.Struct, frozen=True, gc=False):
    """One failure of any run: when, in which batch or ``UNKNOWN_BATCH``, which error class."""

    at: float
    batch_id: int
    error_class: str


class UnreportedCommit(msgspec.Struct, frozen=True, gc=False):
    """A commit that the probe or the commit log has shown and no event has reported yet."""

    since: float
    batch_id: int


class SkippedBatches(msgspec.Struct, frozen=True, gc=False):
    """Batches that the sink does not write, because its own log has their ids already.

    ``since`` is when a reading showed it; ``until`` is the last such batch, and ``first`` the first
    one, where that is not the first batch of the run.
    """

    since: float
    until: int
    first: int | None = None


class LogBehind(msgspec.Struct, frozen=True, gc=False):
    """In ``polls`` readings of the commit log batches had advanced but the log had not."""

    since: float
    polls: int
    batch_id: int


class Query(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One query: its current run, that run's signs of activity, and its history."""

    query_id: str
    run_id: str
    name: str | None
    """The full name; everything that leaves the driver shows ``label``."""
    label: str
    """The name that is shown; see ``identity.py`` for the one time that it may change."""
    started_at: float
    start: Started | None = None
    """The start event of the current run, if it has arrived."""
    unended_runs: tuple[str, ...] = ()
    """The newest past runs whose end has not arrived yet: a new run's start can overtake it."""
    facts: RunFacts | None = None
    last_event_at: float | None = None
    last_commit_at: float | None = None
    last_commit_batch: int | None = None
    run_commit_batch: int | None = None
    """The newest commit of the current run; lower than before after a checkpoint was restored."""
    first_batch: int | None = None
    """The first commit of the current run that was seen."""
    earlier_batch: int | None = None
    """The newest batch that earlier runs of this name have committed ..."""
    earlier_id: str = ""
    """... and the query id of the one that did."""
    last_idle_at: float | None = None
    newest_commit: tuple[int, float] | None = None
    """The last batch of any run whose commit was seen, and when."""
    progress: Progress | None = None
    progress_at: float | None = None
    """When ``progress`` arrived."""
    probed: ProbedRun | None = None
    probed_at: float | None = None
    in_flight: InFlight | None = None
    stopping_since: float | None = None
    """When a poll first showed that it was stopped and still runs."""
    ended: Ended | None = None
    vanished_at: float | None = None
    """When the probe first no longer found the run, while no signal has shown its end."""
    unrecovered: Ended | None = None
    """The failure of an earlier run, until the current run commits or is idle."""
    failures: tuple[RunFailure, ...] = ()
    """The last failures of all runs."""
    unrecovered_failures: int = 0
    """How many of them happened since the last commit or idle trigger."""
    stop_expected: bool = False
    """Whether a planned stop of this run was announced."""
    taken_by: str = ""
    """The label of the query that was started on the checkpoint of this one, so that Spark stopped
    this run (``spark.sql.streaming.stopActiveRunOnRestart``)."""
    id_before: str = ""
    """The query id that its checkpoint folder had before, unless a batch shows that the folder was
    emptied."""
    goes_on: bool = False
    """Whether its first batch followed the last one of that id."""
    reported_elsewhere: bool = False
    """Whether another process, which has closed since, reported the end of this run."""
    unreported: UnreportedCommit | None = None
    logged: LoggedBatches | None = None
    """The newest reading of this run's checkpoint."""
    logged_at: float | None = None
    log_behind: LogBehind | None = None
    start_point: StartingPoint | None = None
    """Where the current run began; the run before it until that has been read."""
    sink_log: SinkLog | None = None
    """The newest reading of the log of this run's sink, if it has one."""
    skipped: SkippedBatches | None = None
    sources: dict[int, PolledSource] = {}
    """By source index: what the source system answers."""
    source_trouble: str = ""
    """Why some sources did not answer the last poll."""
    reading: Reading = Reading()
    """Where all its runs have read up to, and what they have passed over."""
    last_input_at: float | None = None
    """When the current run last read rows, as far as known."""
    without_input_before: float = 0.0
    """For how many seconds the runs before it had read no rows when they ended."""
    inputs: tuple[SourceInput, ...] = ()
    """Its sources, and when each last had rows."""
    trends: Trends = Trends()
    longest_batches: tuple[tuple[int, float], ...] = ()
    """Hours and seconds: the two longest batches of each of the last hours with batches."""
    usual_seconds: float | None = None
    """The second longest of these; None until two are known."""
    recent_batches: tuple[float, ...] = ()
    """Durations of the last batches in seconds, unchanged."""
    totals: Totals = Totals()
    commits_before_run: int = 0
    """The commits in ``totals`` that earlier runs made."""
    datasets: Datasets = Datasets()
    """What it reads and writes, as far as known."""
    jobs_per_batch: float | None = None
    """How many Spark jobs a batch of this query usually runs; None until some were counted."""

    @property
    def alive(self) -> bool:
        """Whether the current run has neither ended nor vanished."""
        return self.ended is None and self.vanished_at is None

    @property
    def gone_at(self) -> float | None:
        """When the current run ended or vanished; None while it is active."""
        return self.ended.at if self.ended is not None else self.vanished_at

    @property
    def gone_or_started_at(self) -> float:
        """When the current run ended or vanished; when it started while it is active."""
        return self.started_at if self.gone_at is None else self.gone_at

    @property
    def last_activity_at(self) -> float:
        """The last commit or idle trigger of this run, else its start."""
        at = self.started_at
        return max(at, self.last_commit_at or at, self.last_idle_at or at)

    @property
    def activity_seen(self) -> bool:
        """Whether this run has committed or been idle."""
        return self.last_commit_at is not None or self.last_idle_at is not None

    @property
    def failure(self) -> Ended | None:
        """The unrecovered failure of this run or of an earlier one."""
        if self.ended is not None and self.ended.outcome is Outcome.FAILED:
            return self.ended
        return self.unrecovered

    @property
    def day_ago_seconds(self) -> float | None:
        """The longest batch of the two hours that were a day before the newest hour with one."""
        newest = max((hour for hour, _ in self.longest_batches), default=0)
        day_ago = (newest - DAY_HOURS, newest - DAY_HOURS + 1)
        return max((s for hour, s in self.longest_batches if hour in day_ago), default=None)

    @property
    def batches_not_durable(self) -> int | None:
        """How many committed batches its commit log lacked at the last reading.

        Only with async progress tracking; None if unknown.
        """
        log, done = self.logged, self.last_commit_batch
        if self.facts is None or not self.facts.async_progress or log is None or done is None:
            return None
        return max(0, done - (-1 if log.committed is None else log.committed))

    @property
    def polls(self) -> dict[int, SourcePoll]:
        """By source index: the last answer of the source system for the current run."""
        sources = self.sources.items()
        return {index: source.poll for index, source in sources if source.poll is not None}

    @property
    def holds_back(self) -> bool:
        """Whether the last trigger left a source's data unread (``minOffsetsPerTrigger``)."""
        probed = self.probed
        if probed is None or probed.idle_progress is None or not probed.waiting:
            return False
        return any(behind(source.end, source.latest) for source in probed.idle_progress.sources)

    @property
    def trigger(self) -> Trigger | None:
        """The current run's trigger; None if unknown."""
        if self.facts is not None and self.facts.trigger.is_known:
            return self.facts.trigger
        return parse_trigger(self.start.trigger) if self.start and self.start.trigger else None

    @property
    def went_back(self) -> str:
        """That a run under an old name has a new checkpoint, until it reaches the old batch id.

        A sink that remembers ids skips its batches until then (Spark's file sink, Hudi, Delta).
        """
        earlier, first, now = self.earlier_batch, self.first_batch, self.run_commit_batch
        if earlier is None or first is None or now is None or now >= earlier:
            return ""
        if self.facts is not None and self.facts.async_progress:
            return ""
        return (
            f"batch ids went from {earlier:,} back to {first:,}: its checkpoint is new or was "
            f"restored; a sink that remembers ids skips batches up to {earlier:,}"
        )

    @property
    def completed_run(self) -> tuple[float, float] | None:
        """When the current run began and ended, if it completed, as the runs of a loop do."""
        if self.ended is None or self.ended.outcome is not Outcome.COMPLETED:
            return None
        return None if self.loop_began is None else (self.loop_began, self.ended.at)

    @property
    def loop_began(self) -> float | None:
        """When the current run began, if its trigger ends by itself."""
        ends = self.trigger is not None and self.trigger.ends_by_itself
        return self.started_at if ends else None

    @property
    def session(self) -> str:
        """The ``sessionUUID`` of the session that started it; empty if unknown."""
        facts = self.facts.session if self.facts is not None else ""
        return facts or (self.start.session if self.start is not None else "")

    @property
    def checkpoint(self) -> str:
        """The folder of its checkpoint; empty if unknown."""
        if self.facts is not None:
            return self.facts.checkpoint
        return self.start.checkpoint if self.start is not None else ""

    @property
    def has_batch(self) -> bool:
        """Whether any signal has shown a batch of this run."""
        polled = self.probed is not None and self.probed.has_batch_id
        return polled or self.run_commit_batch is not None

    @property
    def lost_identity(self) -> bool:
        """Whether its checkpoint has a new query id, although its batch ids go on.

        Of an id in an earlier process the last batch is not known; a commit that is older than this
        run shows the same.
        """
        if not self.id_before or self.goes_on:
            return self.goes_on
        done = self.start_point.committed if self.start_point is not None else None
        if self.start is None or done is None or done.at is None:
            return False
        return done.at < self.started_at - CLOCKS_DIFFER_SECONDS

    @property
    def is_unnamed(self) -> bool:
        """Whether only its id identifies the query."""
        return not self.name

    @property
    def base_name(self) -> str:
        """The text for name patterns: the full name, else the first 8 characters of the id."""
        return self.name or self.query_id[:8]


# -- in flight --------------------------------------------------------------------------------


UNSEEN_SECONDS = 5.0
"""Polls further apart than this have a pause between them."""
BATCHES_TO_LEARN = 3
"""After this many committed batches the number of jobs per batch is known."""


class Delay(str, Enum):
    """What Spark does with the jobs of a batch, or waits for."""

    TASK_RUNNING = "task_running"
    NO_EXECUTORS = "no_executors"
    WAITING_FOR_SLOTS = "waiting_for_slots"


def delay_of(work: JobActivity | None) -> Delay | None:
    """The delay that the newest job poll shows; None without an active job or without data.

    When the slots are unknown, jobs without a running task prove nothing.
    """
    if work is None or not work.jobs.jobs_active:
        return None
    if work.jobs.tasks_active:
        return Delay.TASK_RUNNING
    if work.slots is None:
        return None
    if not work.slots.total:
        return Delay.NO_EXECUTORS
    return Delay.WAITING_FOR_SLOTS if work.slots.taken >= work.slots.total else None


def in_flight(query: Query, run: ProbedRun, at: float) -> InFlight | None:
    """The run's current activity: the same as before, a new one, or none."""
    if not (run.planning or run.processing):
        return None
    batch_id = run.batch_id if run.processing else None
    before = query.in_flight
    if before is None or before.batch_id != batch_id:
        return InFlight(since=at, moved_at=at, batch_id=batch_id)
    before = _unseen(before, query.probed_at, at)
    last_work = query.probed.work if query.probed is not None else None
    if run.work is None:
        return before
    before = _moved(before, last_work, run.work, at)
    delay = delay_of(run.work)
    if delay is not None:
        waited_at = at if delay is not Delay.TASK_RUNNING else before.waited_at
        without_executors_at = at if delay is Delay.NO_EXECUTORS else before.without_executors_at
        before = replace(
            before, delayed_at=at, waited_at=waited_at, without_executors_at=without_executors_at
        )
    if before.jobs_before is None and run.work.counted:
        before = replace(before, jobs_before=run.work.own.jobs_started)
    return before


def _moved(flight: InFlight, before: JobActivity | None, work: JobActivity, at: float) -> InFlight:
    moves = work.moved_since(before) if before is not None else None
    if moves is None and work.works_in_jvm(flight.jvm_cpu_seconds, at - flight.moved_at):
        moves = Moves.DRIVER
    if moves is not None:
        return replace(flight, moved_at=at, moves=moves, jvm_cpu_seconds=work.jvm_cpu_seconds)
    if before is not None and work.works_in_jvm(before.jvm_cpu_seconds, 0.0):
        flight = replace(flight, tried_at=at)
    if flight.jvm_cpu_seconds is None:
        return replace(flight, jvm_cpu_seconds=work.jvm_cpu_seconds)
    return flight


def _unseen(before: InFlight, polled_at: float | None, at: float) -> InFlight:
    """Move ``delayed_at`` past a pause of the JVM: nothing is known about that time."""
    if before.delayed_at is None or polled_at is None or at - polled_at <= UNSEEN_SECONDS:
        return before
    return replace(before, delayed_at=before.delayed_at + at - polled_at)


def jobs_per_batch(query: Query) -> float | None:
    """How many jobs a batch runs, by the jobs counted before the batch in flight took long.

    The count may include jobs of an earlier run: too many do no harm, too few would seem retries.
    """
    flight = query.in_flight
    commits = query.totals.commits - query.commits_before_run
    if flight is None or flight.jobs_before is None or commits < BATCHES_TO_LEARN:
        return query.jobs_per_batch
    return flight.jobs_before / commits


# -- input rows -------------------------------------------------------------------------------


def has_uncounted_rows(query: Query) -> bool:
    """Whether the run may have read rows that no event has reported, or will ever report.

    A ``continuous`` query has no events that count rows. A batch that only the probe has seen may
    have read some, also one in flight.
    """
    is_continuous = query.facts is not None and query.facts.trigger.is_continuous
    if query.unreported is not None or is_continuous:
        return True
    batch_id = query.in_flight.batch_id if query.in_flight is not None else None
    done = query.last_commit_batch
    return batch_id is not None and (done is None or batch_id > done)


def counted_until(query: Query, now: float) -> float:
    """Up to when all rows are counted: ``now``, or when a batch that may have more began.

    A query that is always busy has such a batch at any time.
    """
    if not has_uncounted_rows(query):
        return now
    if query.unreported is None and query.in_flight is not None:
        return query.in_flight.since
    return query.started_at if query.progress_at is None else query.progress_at


UNSURE_SECONDS = 60.0
"""So long after its position was stored a run may have read on: twice the time between stores."""


def last_read(query: Query, now: float, stopped_at: float | None = None) -> LastRead:
    """Where the query has read up to, for a later checkpoint or process.

    That is exact once the event of its end has arrived, and surely those of all its batches.
    ``stopped_at`` is when it was over at the latest, such as the SparkContext's stop.
    """
    reading = query.reading
    over_at = None
    if not (reading.is_over and _is_reported(query)):
        ends = (query.gone_at, stopped_at, now + UNSURE_SECONDS)
        over_at = next(at for at in ends if at is not None)
    return LastRead(
        now,
        positions=reading.positions,
        gaps=reading.gaps,
        over_at=over_at,
        session=query.session,
        is_temporary=query.facts is not None and query.facts.is_temporary,
        run_id="" if reading.is_over else query.run_id,
        systems=reading.systems,
        earlier=reading.earlier,
    )


def _is_reported(query: Query) -> bool:
    """Whether no batch of an ended run has been committed whose event was not sent.

    ``stop()`` interrupts a run anywhere, also between the two. A run was at rest if it was idle or
    polled after its last event, and nothing shows a later batch.
    """
    done = -1 if query.progress is None else query.progress.batch_id
    if query.last_commit_at is not None and done < (query.run_commit_batch or 0):
        return False
    if query.ended is None or query.ended.outcome is not Outcome.STOPPED:
        return True
    flying = None if query.in_flight is None else query.in_flight.batch_id
    planned = None if query.logged is None else query.logged.planned
    if any(batch_id is not None and batch_id > done for batch_id in (flying, planned)):
        return False
    reported_at = query.started_at if query.progress_at is None else query.progress_at
    seen = (query.last_idle_at, *(poll.at for poll in query.polls.values()))
    return any(at is not None and at >= reported_at for at in seen)


def without_input(old: Query, at: float) -> float:
    """Seconds without input rows up to ``at``, of a run that has ended and of the runs before it.

    The time between the runs of a query that ends by itself counts. 0 when it is not known.
    """
    if has_uncounted_rows(old):
        return 0.0
    return _without(old, _input_until(old, at), old.last_input_at, old.without_input_before)


def inputs_before(old: Query, at: float) -> tuple[SourceInput, ...]:
    """The sources of such a run, for the next one: for how long each had no rows."""
    until = counted_until(old, _input_until(old, at))
    return tuple(
        replace(
            source,
            last_at=None,
            without_before=_without(old, until, source.last_at, source.without_before),
        )
        for source in old.inputs
    )


def _input_until(old: Query, at: float) -> float:
    return at if old.ended is None or old.completed_run else old.ended.at


def _without(old: Query, until: float, last_at: float | None, before: float) -> float:
    if last_at is not None:
        return max(0.0, until - last_at)
    return max(0.0, until - old.started_at) + before
