"""Everything known of one query, as frozen records. Times are monotonic seconds."""

from __future__ import annotations

from enum import Enum

import msgspec

from .commit_log import LoggedBatches
from .events import Progress, Started
from .failure import Failure
from .offsets import behind
from .probing import ProbedRun, RunFacts, Trigger, parse_trigger
from .sources.report import SourcePoll
from .sources.retention import SourceEdges
from .sources.shortfall import Shortfalls
from .sources.unread import Unread
from .starting_point import StartingPoint
from .trends import Trends

BASELINE_BATCHES = 50
RECENT_BATCHES = 30
BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Upper bounds in seconds of the batch-duration histogram."""


class Outcome(str, Enum):
    """How a run ended."""

    FAILED = "failed"
    STOPPED = "stopped"
    COMPLETED = "completed"


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The end of a run and the witness that saw it first."""

    at: float
    outcome: Outcome
    signal: str
    failure: Failure | None = None


class Totals(msgspec.Struct, frozen=True, gc=False):
    """Counters that outlive runs, so that Prometheus sees them only grow."""

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
    """What a busy run is doing: a batch, or (``batch_id`` None) looking for one.

    ``moved_at`` is the last time its tasks were seen to get on.
    """

    since: float
    moved_at: float
    batch_id: int | None
    delayed_at: float | None = None
    """When a task of it was last seen to run, or its jobs to wait for executors or slots."""
    jobs_before: int | None = None
    """How many jobs of the query had begun when this was first seen to take long; counted ones."""


class Died(msgspec.Struct, frozen=True, gc=False):
    """One failure of any run: when, in which batch, of what."""

    at: float
    batch_id: int
    error_class: str


class UnreportedCommit(msgspec.Struct, frozen=True, gc=False):
    """A commit that the probe has seen and no event has told of yet."""

    since: float
    batch_id: int


class LogBehind(msgspec.Struct, frozen=True, gc=False):
    """Batches went on at ``polls`` looks into the commit log, which did not."""

    since: float
    polls: int
    batch_id: int


class Query(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One query: its present run, the signs of life of that run, and what came before."""

    query_id: str
    run_id: str
    name: str | None
    """The full name; everything that leaves the driver shows ``label``."""
    label: str
    """What it is shown under, for the life of the process; see ``identity.py``."""
    started_at: float
    start: Started | None = None
    """The event of the present run's start, where it has arrived."""
    unended_runs: tuple[str, ...] = ()
    """The newest past runs whose end has not arrived yet: the start of a new run overtakes it."""
    facts: RunFacts | None = None
    last_event_at: float | None = None
    last_commit_at: float | None = None
    last_commit_batch: int | None = None
    run_commit_batch: int | None = None
    """The newest commit of the present run: a checkpoint copied back begins lower again."""
    last_idle_at: float | None = None
    newest_commit: tuple[int, float] | None = None
    """The last batch, of any run, that was seen to commit, and when."""
    progress: Progress | None = None
    progress_at: float | None = None
    """When ``progress`` arrived."""
    probed: ProbedRun | None = None
    probed_at: float | None = None
    in_flight: InFlight | None = None
    ended: Ended | None = None
    vanished_at: float | None = None
    """When the probe first missed a run whose end no witness has seen."""
    unrecovered: Ended | None = None
    """The failure of an earlier run, until the present run shows a commit or idleness."""
    deaths: tuple[Died, ...] = ()
    """The last failures, of all runs."""
    unrecovered_deaths: int = 0
    """How many of them came since the last commit or idleness."""
    stop_expected: bool = False
    """Whether somebody has said that this run is going to be stopped."""
    reported_elsewhere: bool = False
    """Whether the end of this run was reported by another process, which has closed since."""
    unreported: UnreportedCommit | None = None
    logged: LoggedBatches | None = None
    """The newest look into this run's checkpoint."""
    logged_at: float | None = None
    log_behind: LogBehind | None = None
    start_point: StartingPoint | None = None
    """Where the present run began, or the one before it as long as this one's is not read."""
    polls: dict[int, SourcePoll] = {}
    """By the source's index: what the system it reads from last said of the present run."""
    source_trouble: str = ""
    """Why not all of them answered when they were last asked."""
    retention: dict[int, SourceEdges] = {}
    """By the source's index: how its retention edge moves, over all runs of the checkpoint."""
    shortfalls: Shortfalls = {}
    """What its sources lack of what it has read of them."""
    unread: Unread = Unread()
    """For how long what the present run has not read has waited."""
    last_input_at: float | None = None
    """When the present run was last known to have read rows."""
    without_input_before: float = 0.0
    """For how many seconds the runs before it, up to their end, had read none."""
    trends: Trends = Trends()
    baseline: tuple[float, ...] = ()
    """Durations in seconds of the last batches, as the stall window learns them."""
    recent_batches: tuple[float, ...] = ()
    """Durations in seconds of the last batches, as they were."""
    totals: Totals = Totals()
    commits_before_run: int = 0
    """The commits in ``totals`` that earlier runs made."""
    jobs_per_batch: float | None = None
    """How many Spark jobs a batch of this query usually runs; None until some were counted."""

    @property
    def alive(self) -> bool:
        """Whether the present run has neither been seen to end nor gone missing."""
        return self.ended is None and self.vanished_at is None

    @property
    def gone_at(self) -> float | None:
        """When the present run ended or vanished; None while it is alive."""
        return self.ended.at if self.ended is not None else self.vanished_at

    @property
    def last_sign_at(self) -> float:
        """The last commit or proof of idleness of this run, else its start."""
        return max(
            self.started_at,
            self.started_at if self.last_commit_at is None else self.last_commit_at,
            self.started_at if self.last_idle_at is None else self.last_idle_at,
        )

    @property
    def first_sign_seen(self) -> bool:
        """Whether this run has committed or been idle at all."""
        return self.last_commit_at is not None or self.last_idle_at is not None

    @property
    def failure(self) -> Ended | None:
        """The failure that still stands: of this run, or of an earlier one not recovered from."""
        if self.ended is not None and self.ended.outcome is Outcome.FAILED:
            return self.ended
        return self.unrecovered

    @property
    def batches_not_durable(self) -> int | None:
        """How many committed batches its commit log lacks, as of the last look into it.

        Only under async progress tracking; None where it is not known.
        """
        log, done = self.logged, self.last_commit_batch
        if self.facts is None or not self.facts.async_progress or log is None or done is None:
            return None
        return max(0, done - (-1 if log.committed is None else log.committed))

    @property
    def holds_back(self) -> bool:
        """Whether a source has data and the last trigger left it (``minOffsetsPerTrigger``)."""
        idle = self.probed.idle_progress if self.probed is not None else None
        return idle is not None and any(
            behind(source.end, source.latest) for source in idle.sources
        )

    @property
    def trigger(self) -> Trigger | None:
        """The present run's trigger; None where nobody knows it."""
        if self.facts is not None and self.facts.trigger.is_known:
            return self.facts.trigger
        return parse_trigger(self.start.trigger) if self.start and self.start.trigger else None

    @property
    def session(self) -> str:
        """The ``sessionUUID`` of the session that started it; empty where nobody knows it."""
        facts = self.facts.session if self.facts is not None else ""
        return facts or (self.start.session if self.start is not None else "")

    @property
    def is_unnamed(self) -> bool:
        """Whether nothing but its id says which query it is."""
        return not self.name

    @property
    def base_name(self) -> str:
        """What patterns of names match: its full name, else the first 8 characters of its id."""
        return self.name or self.query_id[:8]
