"""What survives a restart of a query: its history, and what its runs know of their checkpoint.

A ``History`` goes on from run to run. A ``Checkpoint`` goes on as long as the runs have the same
one. Times are monotonic seconds.
"""

from __future__ import annotations

from bisect import bisect_left

import msgspec
from msgspec.structs import replace

from ..commit_log import USUAL_HOURS, StartingPoint
from ..events import Progress
from ..failure import Failure
from ..foresight.intake import Intake
from ..foresight.phases import Batches
from ..foresight.state_growth import Growth
from ..foresight.tasks import Spent
from ..source_polls import SourcePoll
from .flow import Datasets
from .inputs import SourceInput
from .positions import Reading
from .run import Ended, InFlight, Outcome
from .sources import PolledSource
from .trends import LateShare, Trends

# -- totals -----------------------------------------------------------------------------------


BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Upper bounds in seconds of the batch-duration histogram."""


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


def count_batch(totals: Totals, progress: Progress) -> Totals:
    """Add a batch to the totals of its query."""
    buckets = totals.batch_buckets
    seconds = progress.batch_seconds
    if seconds is not None:
        slot = bisect_left(BUCKETS, seconds)
        buckets = (*buckets[:slot], buckets[slot] + 1, *buckets[slot + 1 :])
    return replace(
        totals,
        input_rows=totals.input_rows + progress.input_rows,
        output_rows=totals.output_rows + (progress.output_rows or 0),
        late_rows=totals.late_rows + progress.late_rows,
        batch_buckets=buckets,
        batch_seconds=totals.batch_seconds + (seconds or 0.0),
    )


def count_end(totals: Totals, outcome: Outcome) -> Totals:
    """Add the end of a run to the totals of its query."""
    return replace(totals, **{outcome.value: getattr(totals, outcome.value) + 1})


def add_totals(older: Totals, newer: Totals) -> Totals:
    """The totals of two records of one query."""
    fields = Totals.__struct_fields__
    sums = {field: getattr(older, field) + getattr(newer, field) for field in fields}
    buckets = map(sum, zip(older.batch_buckets, newer.batch_buckets, strict=True))
    return Totals(**sums | {"batch_buckets": tuple(buckets)})


# -- history ----------------------------------------------------------------------------------


DAY_HOURS = 24
RECENT_BATCHES = 30
MAX_PAST_FAILURES = 16
BATCHES_TO_LEARN = 3
"""After this many committed batches the number of jobs per batch is known."""
UNKNOWN_BATCH = -1


class RunFailure(msgspec.Struct, frozen=True, gc=False):
    """One failure of any run: when, in which batch or ``UNKNOWN_BATCH``, which error class."""

    at: float
    batch_id: int
    error_class: str


class History(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is known of a query over all its runs; ``query.succeed`` passes it on to the next."""

    unended_runs: tuple[str, ...] = ()
    """The newest past runs whose end has not arrived yet: a new run's start can overtake it."""
    unrecovered: Ended | None = None
    """The failure of an earlier run, until the current run commits or is idle."""
    failures: tuple[RunFailure, ...] = ()
    """The last failures of all runs."""
    unrecovered_failures: int = 0
    """How many of them happened since the last commit or idle trigger."""
    earlier_batch: int | None = None
    """The newest batch that earlier runs of this name have committed ..."""
    earlier_id: str = ""
    """... and the query id of the one that did."""
    reading: Reading = Reading()
    """Where all its runs have read up to, and what they have passed over."""
    longest_batches: tuple[tuple[int, float], ...] = ()
    """Hours and seconds: the two longest batches of each of the last hours with batches."""
    usual_seconds: float | None = None
    """The second longest of these; None until two are known."""
    recent_batches: tuple[float, ...] = ()
    """Durations of the last batches in seconds, unchanged."""
    jobs_per_batch: float | None = None
    """How many Spark jobs a batch of this query usually runs; None until some were counted."""
    late_share: LateShare | None = None
    """Which part of its rows it drops as late; None for a query that keeps no state."""
    completed_at: float | None = None
    """When an earlier run last completed, also in an earlier process, as far as known."""
    totals: Totals = Totals()
    spent: Spent | None = None
    """What finished tasks did; None where they are not counted."""
    commits_before_run: int = 0
    """The commits in ``totals`` that earlier runs made."""

    @property
    def day_ago_seconds(self) -> float | None:
        """The longest batch of the two hours that were a day before the newest hour with one."""
        newest = max((hour for hour, _ in self.longest_batches), default=0)
        day_ago = (newest - DAY_HOURS, newest - DAY_HOURS + 1)
        return max((s for hour, s in self.longest_batches if hour in day_ago), default=None)


def count_run(history: History, outcome: Outcome) -> History:
    """Add the end of a run."""
    return replace(history, totals=count_end(history.totals, outcome))


def latest(*times: float | None) -> float | None:
    """The latest of the times that are known; None if none is."""
    return max((at for at in times if at is not None), default=None)


def recovered(history: History) -> History:
    """Mark the failures of earlier runs as recovered."""
    if history.unrecovered is None and not history.unrecovered_failures:
        return history
    return replace(history, unrecovered=None, unrecovered_failures=0)


def count_failure(
    history: History, failure: Failure, at: float, batch_id: int, *, is_unrecovered: bool = True
) -> History:
    """Add a failure of a run, in ``batch_id`` or ``UNKNOWN_BATCH``."""
    failed = RunFailure(at, batch_id, failure.error_class)
    return replace(
        history,
        failures=(*history.failures, failed)[-MAX_PAST_FAILURES:],
        unrecovered_failures=history.unrecovered_failures + is_unrecovered,
    )


def learn(history: History, seconds: float | None, at: float) -> History:
    """Add a batch's duration: the two longest of each hour are kept, for ``USUAL_HOURS``.

    However rare batches are, the last two hours with one are kept.
    """
    longest = history.longest_batches
    hour = int(at // 3600)
    has_two = len(longest) > 1 and longest[-2][0] == longest[-1][0] == hour
    if seconds is None or (has_two and min(longest[-2:])[1] >= seconds):
        return history
    of_hour = sorted([*(batch for batch in longest if batch[0] == hour), (hour, seconds)])
    before = [batch for batch in longest if batch[0] != hour]
    recent = [batch for batch in before if batch[0] >= hour - USUAL_HOURS] or before[-1:]
    return with_longest(history, (*recent, *of_hour[-2:]))


def with_longest(history: History, batches: tuple[tuple[int, float], ...]) -> History:
    """The history with these longest batches, and with what is usual by them.

    What happened once is an accident; what happened twice is normal.
    """
    longest = sorted(seconds for _, seconds in batches)
    usual = longest[-2] if len(longest) > 1 else None
    return replace(history, longest_batches=batches, usual_seconds=usual)


def learn_jobs(history: History, flight: InFlight | None) -> History:
    """Learn how many jobs a batch runs, by those counted before the one in flight took long.

    The count may include jobs of an earlier run: too many do no harm, too few would seem retries.
    """
    commits = history.totals.commits - history.commits_before_run
    if flight is None or flight.jobs_before is None or commits < BATCHES_TO_LEARN:
        return history
    return replace(history, jobs_per_batch=flight.jobs_before / commits)


# -- checkpoint -------------------------------------------------------------------------------


class Checkpoint(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the runs on one checkpoint know of it; of a new or an emptied one, nothing."""

    id_before: str = ""
    """The query id that the folder had before, unless a batch shows that it was emptied."""
    start_point: StartingPoint | None = None
    """Where the current run began; the run before it until that has been read."""
    last_commit_batch: int | None = None
    """The newest commit that any run has made."""
    newest_commit: tuple[int, float] | None = None
    """The last batch whose commit was seen, and when."""
    sources: dict[int, PolledSource] = {}
    """By source index: what the source system answers."""
    inputs: tuple[SourceInput, ...] = ()
    """The sources of the query, and when each last had rows."""
    without_input_before: float = 0.0
    """For how many seconds the runs before this one had read no rows when they ended."""
    trends: Trends = Trends()
    intakes: dict[int, Intake] = {}
    """By source index: what has arrived and what was read, where a source shows that."""
    batches: Batches = {}
    """The newest batches and some older ones: what is usual for them."""
    growth: Growth = {}
    """What keeps state, and how that grows."""
    datasets: Datasets = Datasets()
    """What the query reads and writes, as far as known."""

    @property
    def polls(self) -> dict[int, SourcePoll]:
        """By source index: the last answer of the source system for the current run."""
        sources = self.sources.items()
        return {index: source.poll for index, source in sources if source.poll is not None}
