"""What rules find, as typed facts: no prose. ``words/`` says them.

Each class is one thing that can be wrong, and has the ``code`` that counts, groups and compares it.
Ages and durations are seconds at the time of the evaluation, unless a field says otherwise.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

import msgspec

from ..core.states import QueryState
from ..listener.failure import Failure
from ..listener.foresight.filling import Full
from ..listener.foresight.resources import Container, Disk, Heap
from ..listener.foresight.state_growth import Cause
from ..listener.probe_report import LongTask, Moves, SessionEnd
from ..listener.state.positions import Gap
from .kinds import Code, SharedCause


class Unfinished(msgspec.Struct, frozen=True):
    """A batch that an earlier process planned this long ago, and that none has committed."""

    batch_id: int
    age_seconds: float


LOSSES_OF_A_CAUSE = 3


class Losses(msgspec.Struct, frozen=True):
    """So many executors were lost in so many seconds, and what Spark says of the last one."""

    count: int
    seconds: float
    reason: str

    @property
    def are_a_cause(self) -> bool:
        """Whether they are so many that they may hold a batch; one is an accident."""
        return self.count >= LOSSES_OF_A_CAUSE


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What every finding may say in addition.

    ``unfinished``: what fails or is stuck is as old as this batch. ``stopping_seconds``: for how
    long the run goes on although it was stopped. ``waiting``: who waits for its slots. ``lost``:
    the executors that were lost since its batch began.
    """

    code: ClassVar[Code]
    unfinished: Unfinished | None = None
    stopping_seconds: float | None = None
    waiting: tuple[str, ...] = ()
    lost: Losses | None = None

    @property
    def has_older_problem(self) -> bool:
        """Whether the batch has a problem that is older than what holds it now."""
        return self.unfinished is not None or self.stopping_seconds is not None


# -- runs that ended, or never began ----------------------------------------------------------


class Failed(Facts, frozen=True, kw_only=True):
    """A run ended with an exception.

    ``expected_within``: a restart is expected within so many seconds, because the error is
    expected (``is_expected_error``) or the process ends.
    """

    code = Code.FAILED
    failure: Failure
    expected_within: float | None = None
    is_expected_error: bool = False


class GivenUp(Facts, frozen=True, kw_only=True):
    """``supervise`` does not restart it any more: ``why`` is its last failure."""

    code = Code.GIVEN_UP
    why: str
    restarts: int
    failure: Failure | None = None


class HowStopped(str, Enum):
    """How a run ended without an exception."""

    STOPPED = "stopped"
    VANISHED = "vanished"
    WITH_CONTEXT = "with_context"


class Stopped(Facts, frozen=True, kw_only=True):
    """A run ended without an exception, and has not restarted."""

    code = Code.STOPPED
    how: HowStopped
    seconds: float


class CheckpointTaken(Facts, frozen=True, kw_only=True):
    """Spark stopped it, because the query ``by`` was started on its checkpoint."""

    code = Code.CHECKPOINT_TAKEN
    by: str
    seconds: float
    checkpoint: str


class SessionExpired(Facts, frozen=True, kw_only=True):
    """The Spark Connect server stopped it, because its client was gone."""

    code = Code.SESSION_EXPIRED
    seconds: float
    session: SessionEnd


class ProgramEnded(Facts, frozen=True, kw_only=True):
    """The main program ended (``how``) while these queries ran."""

    code = Code.PROGRAM_ENDED
    how: str
    queries: tuple[str, ...]


class NoActivity(Facts, frozen=True, kw_only=True):
    """It was started, and no signal has seen it since."""

    code = Code.NO_ACTIVITY
    seconds: float


class StartOverdue(Facts, frozen=True, kw_only=True):
    """Its start by ``supervise`` has been due for so long."""

    code = Code.START_OVERDUE
    seconds: float


class NeverSeen(Facts, frozen=True, kw_only=True):
    """It is expected, and no signal has ever seen it; ``known_queries`` were seen."""

    code = Code.NEVER_SEEN
    seconds: float
    known_queries: tuple[str, ...]


class NotCompleted(Facts, frozen=True, kw_only=True):
    """No run has completed for the deadline ``due_at``; times are Unix seconds.

    ``times`` is the setting. Of a run in flight, its batch and for how long it has run.
    """

    code = Code.NOT_COMPLETED
    times: str
    due_at: float
    completed_at: float | None
    running_seconds: float | None = None
    batch_id: int | None = None


class PastFailure(msgspec.Struct, frozen=True):
    """One of the last failures; ``batch_id`` is None if unknown."""

    seconds_ago: float
    batch_id: int | None
    error_class: str
    is_of_earlier_process: bool


class PoisonBatch(Facts, frozen=True, kw_only=True):
    """The same batch failed so often with the same error: another restart will not help."""

    code = Code.POISON_BATCH
    batch_id: int
    times: int
    error_class: str
    earlier: int
    """How many of these failures were in earlier processes."""
    failures: tuple[PastFailure, ...] = ()
    failure: Failure | None = None
    """The last one; None if it was in an earlier process, of which only the classes are known."""


class ManyFailures(Facts, frozen=True, kw_only=True):
    """The restart budget of ``within_seconds`` is used up."""

    code = Code.MANY_FAILURES
    times: int
    within_seconds: float
    error_class: str
    earlier: int
    failures: tuple[PastFailure, ...] = ()
    failure: Failure | None = None
    """As in ``PoisonBatch``."""


# -- batches ----------------------------------------------------------------------------------


class Flight(msgspec.Struct, frozen=True):
    """The batch in flight, or with ``batch_id`` None its planning, and for how long."""

    batch_id: int | None
    seconds: float


class Place(msgspec.Struct, frozen=True):
    """Where the thread that runs a batch is.

    ``is_retrying``: Spark's thread uses a little CPU time, as for lock contention or polling.
    """

    line: str = ""
    is_retrying: bool = False


class Slots(msgspec.Struct, frozen=True):
    """How many slots other jobs hold, and who holds most: a label; None for jobs of no query."""

    total: int
    taken: int
    held: int = 0
    holder: str | None = None


class SchedulerStopped(Facts, frozen=True, kw_only=True):
    """Spark's scheduler starts and ends no job; ``waits_seconds`` is None if its loop has ended."""

    code = Code.SCHEDULER_STOPPED
    flight: Flight
    waits_seconds: float | None = None


class TaskRunning(Facts, frozen=True, kw_only=True):
    """Tasks run, and none has finished; ``is_own`` is False if their jobs name no query."""

    code = Code.TASK_RUNNING
    flight: Flight
    still_seconds: float
    tasks: int
    is_own: bool = True
    longest: LongTask | None = None


class NoExecutors(Facts, frozen=True, kw_only=True):
    """No executor is available to run its tasks."""

    code = Code.NO_EXECUTORS
    flight: Flight
    still_seconds: float


class ExecutorsLost(Facts, frozen=True, kw_only=True):
    """Executors are lost before the batch moves: its tasks begin again and again."""

    code = Code.EXECUTORS_LOST
    flight: Flight
    still_seconds: float


class WaitingForSlots(Facts, frozen=True, kw_only=True):
    """None of its tasks runs, since others hold all slots."""

    code = Code.WAITING_FOR_SLOTS
    flight: Flight
    still_seconds: float
    slots: Slots | None


class BatchHung(Facts, frozen=True, kw_only=True):
    """Nothing moves in the batch, and nothing shows what delays it.

    ``still_seconds`` is None where nothing shows its tasks, as on Spark Connect.
    """

    code = Code.BATCH_HUNG
    flight: Flight
    still_seconds: float | None
    place: Place


class SourceHung(Facts, frozen=True, kw_only=True):
    """It waits for the offsets of a source; ``step`` is what Spark says that it does."""

    code = Code.SOURCE_HUNG
    step: str
    seconds: float
    place: Place


class WaitsForLog(Facts, frozen=True, kw_only=True):
    """The next batch waits for the commit log."""

    code = Code.COMMIT_LOG_BEHIND
    seconds: float


class LogBehind(Facts, frozen=True, kw_only=True):
    """The commit log stays at batch ``logged`` (None: empty) while batches reach ``reached``."""

    code = Code.COMMIT_LOG_BEHIND
    seconds: float
    logged: int | None
    reached: int | None


class NoEpoch(Facts, frozen=True, kw_only=True):
    """A Continuous query commits no epoch."""

    code = Code.COMMIT_LOG_BEHIND
    seconds: float


class Silent(Facts, frozen=True, kw_only=True):
    """No signal shows any activity."""

    code = Code.SILENT
    seconds: float


class NoTrigger(Facts, frozen=True, kw_only=True):
    """No batch is in flight, and no trigger has started one."""

    code = Code.NO_TRIGGER
    seconds: float


class BatchSlow(Facts, frozen=True, kw_only=True):
    """A batch takes long, but moves: its tasks (``is_own`` as in ``TaskRunning``), or a thread."""

    code = Code.WORKING
    flight: Flight
    moves: Moves
    line: str = ""
    is_own: bool = True


class Retrying(BatchSlow, frozen=True, kw_only=True):
    """A slow batch has run ``jobs`` jobs, far more than are usual for a batch of the query."""

    code = Code.RETRYING
    jobs: int
    usual_jobs: float


class NeverCommitted(BatchSlow, frozen=True, kw_only=True):
    """A slow batch was planned by an earlier process, and none has committed it."""

    code = Code.NOT_COMMITTED
    planned: Unfinished


class SlotsHeld(Facts, frozen=True, kw_only=True):
    """Its tasks hold the slots that other queries wait for."""

    code = Code.SLOTS_HELD
    slots: Slots | None


class StuckSource(msgspec.Struct, frozen=True):
    """A source of which ``count`` partitions do not advance, some of their names, and how long."""

    description: str
    partitions: tuple[str, ...]
    count: int
    seconds: float


class OffsetsStuck(Facts, frozen=True, kw_only=True):
    """Batches run, data is unread, and offsets do not advance."""

    code = Code.OFFSETS_STUCK
    sources: tuple[StuckSource, ...]


class WentBack(msgspec.Struct, frozen=True):
    """The end offset of a source or partition went back."""

    source: str
    was: int | tuple[int, ...]
    now: int | tuple[int, ...]


class EndsBefore(msgspec.Struct, frozen=True):
    """A source or partition ends before what was read."""

    source: str
    end: int
    committed: int


class OffsetsWentBack(Facts, frozen=True, kw_only=True):
    """Offsets went back, a source ends too early, or a checkpoint has lost its query id.

    ``new_id_of``: the checkpoint that has a new id, ``id_before`` the old one.
    """

    code = Code.OFFSETS_WENT_BACK
    went_back: tuple[WentBack, ...] = ()
    ends_before: tuple[EndsBefore, ...] = ()
    new_id_of: str | None = None
    id_before: str = ""

    @property
    def has_gone_back(self) -> bool:
        """Whether offsets of a source went back, not only the identity of the checkpoint."""
        return bool(self.went_back or self.ends_before)


class BatchIdsWentBack(Facts, frozen=True, kw_only=True):
    """Batch ids went back from ``earlier`` to ``first``: the checkpoint is new or was restored."""

    code = Code.BATCH_IDS_WENT_BACK
    earlier: int
    first: int


# -- unread and late data -----------------------------------------------------------------------


class WaitedTooLong(Facts, frozen=True, kw_only=True):
    """The first unread record has waited for too long."""

    code = Code.WAITED_TOO_LONG
    partition: str
    seconds: float
    allowed: float


class LagRises(Facts, frozen=True, kw_only=True):
    """The lag rose from ``first`` to ``newest``, in ``unit``, within ``seconds``."""

    code = Code.LAG_RISES
    unit: str
    first: float
    newest: float
    seconds: float
    allowed: float


class OpenTransaction(Facts, frozen=True, kw_only=True):
    """Records wait behind a transaction that stays open; ``partitions`` in all have one."""

    code = Code.OPEN_TRANSACTION
    partition: str
    records: int
    seconds: float
    partitions: int


class BatchesGrow(Facts, frozen=True, kw_only=True):
    """Batches, or the runs of a loop, outlast their limit and grow.

    ``first`` and ``newest`` are usual durations; ``day_ago`` replaces ``first`` if it is known.
    """

    code = Code.BATCHES_GROW
    batches: int
    is_loop: bool
    limit: float
    seconds: float
    first: float
    newest: float
    day_ago: float | None = None


class WatermarkStuck(Facts, frozen=True, kw_only=True):
    """The watermark does not advance, although newer event times were read."""

    code = Code.WATERMARK_STUCK
    seconds: float
    batches: int


class WatermarkAhead(Facts, frozen=True, kw_only=True):
    """The watermark (Unix seconds) is in the future: honest rows are late."""

    code = Code.WATERMARK_AHEAD
    watermark: float
    ahead_seconds: float
    late_rows: int


class RowsDropped(Facts, frozen=True, kw_only=True):
    """Batches drop late rows; ``behind_seconds`` is how far event times are behind.

    ``usual_share`` is the part of its rows that the query dropped in the worst hour of the day
    before; None until that is known.
    """

    code = Code.ROWS_DROPPED
    batches: int
    seconds: float
    rows: int
    input_rows: int
    usual_share: float | None = None
    behind_seconds: float | None = None


class StateGrowing(Facts, frozen=True, kw_only=True):
    """State grows, and what removes it does not follow, or it fills its limit.

    ``operator`` grew so much in ``seconds``; ``cause`` is None where it is unknown. With a limit,
    ``size_bytes`` is the state of all operators, and reaches it in ``limit_seconds``.
    """

    code = Code.STATE_GROWS
    operator: str
    rows: float | None
    size_bytes: float | None
    seconds: float
    grown_rows: float | None = None
    grown_bytes: float | None = None
    cause: Cause | None = None
    has_removed: bool = False
    limit_bytes: int | None = None
    limit_seconds: float | None = None


# -- lost and missing data ----------------------------------------------------------------------


class RetentionRisk(msgspec.Struct, frozen=True, kw_only=True):
    """A partition, or table, whose unread data is near the retention edge, or beyond it.

    ``used`` is the used share of the retention: of its time if ``oldest_seconds``, the age of the
    oldest unread record, is known, else of what it retains. ``unit`` is what is counted.
    """

    name: str
    unit: str
    committed: int
    earliest: int
    used: float
    lost: int = 0
    gone: str = ""
    left_seconds: float | None = None
    oldest_seconds: float | None = None
    setting: str = ""


class RetentionUsed(Facts, frozen=True, kw_only=True):
    """Unread data is about to be deleted, or was; the worst partitions first, of ``count``."""

    code = Code.RETENTION_USED
    risks: tuple[RetentionRisk, ...]
    count: int


class SkippedBySink(Facts, frozen=True, kw_only=True):
    """The sink's log is ahead: batches up to ``until`` are read and not written."""

    code = Code.SKIPPED_BY_SINK
    sink: str
    until: int
    batches: int
    """How many batches of this run were skipped so far."""


class SinkRemembers(Facts, frozen=True, kw_only=True):
    """Batch ids went back, and the sink may skip the ids that it remembers."""

    code = Code.SINK_REMEMBERS
    sink: str
    ids: BatchIdsWentBack
    trouble: str = ""
    """Why its log could not be read."""


class PassedOver(Facts, frozen=True, kw_only=True):
    """Records or versions were never read; the largest gaps first, of ``count``.

    ``is_readable`` and ``are_tables`` decide how to read them.
    """

    code = Code.PASSED_OVER
    gaps: tuple[Gap, ...]
    count: int
    is_lost: bool
    is_readable: bool
    are_tables: bool


class FolderGone(Facts, frozen=True, kw_only=True):
    """The input folder is not there any more."""

    code = Code.FOLDER_GONE
    folder: str
    source: str
    seconds: float


class ReadsNothing(Facts, frozen=True, kw_only=True):
    """Offsets of a source advance, and no batch has a row."""

    code = Code.READS_NOTHING
    source: str
    batches: int
    seconds: float


class Since(str, Enum):
    """Since when there are no rows."""

    LAST_ROWS = "last_rows"
    RUN_BEGAN = "run_began"
    EARLIER_RUNS = "earlier_runs"


class DrySource(msgspec.Struct, frozen=True):
    """A source without rows; ``number`` of ``alike`` sources with the same description."""

    description: str
    number: int
    alike: int
    seconds: float
    since: Since


class NoRows(Facts, frozen=True, kw_only=True):
    """The query, or with ``sources`` some of its sources, has no rows for too long."""

    code = Code.NO_ROWS
    allowed: float
    seconds: float = 0.0
    since: Since = Since.LAST_ROWS
    sources: tuple[DrySource, ...] = ()


# -- the driver and the monitor -----------------------------------------------------------------


class JvmEnded(Facts, frozen=True, kw_only=True):
    """The JVM of the driver has ended, and these queries with it; None if it is not known which."""

    code = Code.JVM_ENDED
    queries: tuple[str, ...] | None = None


SCARCE = 0.8
"""A driver that uses this part of its memory may have died of it."""


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of the driver; what is not known is None.

    ``heap_full`` and ``container_full``: when these are, if they fill up. ``gc_share``: what part
    of the last minutes collections took.
    """

    heap: Heap | None = None
    heap_full: Full | None = None
    gc_share: float | None = None
    container: Container | None = None
    container_full: Full | None = None

    @property
    def is_scarce(self) -> bool:
        """Whether it may have ended a driver that ends now."""
        heap, container = self.heap, self.container
        left = 0 if heap is None else heap.after_gc_bytes or 0
        heap_is_full = heap is not None and left >= SCARCE * heap.max_bytes
        return heap_is_full or (
            container is not None and container.working_set_bytes >= SCARCE * container.limit_bytes
        )


class HeapFull(Facts, frozen=True, kw_only=True):
    """Its heap is nearly full after garbage collection, or fills up."""

    code = Code.HEAP_FULL
    memory: MemoryUse


class InCollection(Facts, frozen=True, kw_only=True):
    """More than half of its time goes into garbage collection."""

    code = Code.IN_COLLECTION
    memory: MemoryUse


class ContainerFull(Facts, frozen=True, kw_only=True):
    """Its container is at its limit, or fills up."""

    code = Code.CONTAINER_FULL
    memory: MemoryUse


DriverMemory = HeapFull | InCollection | ContainerFull


class FullDisk(msgspec.Struct, frozen=True):
    """A disk that is ``full``, now or soon."""

    disk: Disk
    full: Full


class DisksFull(Facts, frozen=True, kw_only=True):
    """Disks of the driver are full, or fill up; the one that is full first comes first."""

    code = Code.DISK_FULL
    disks: tuple[FullDisk, ...]


class EventsMissing(Facts, frozen=True, kw_only=True):
    """Commits of the ``late`` queries without events for ``late_seconds``; or dropped events."""

    code = Code.EVENTS_MISSING
    late: tuple[str, ...] = ()
    late_seconds: float = 0.0
    dropped: int | None = None
    is_registered: bool = True
    full_queues: tuple[str, ...] = ()
    """The queues of other listeners that drop events, a line each."""


class Degraded(Facts, frozen=True, kw_only=True):
    """querypulse cannot see every query: what fails, by kind."""

    code = Code.DEGRADED
    failed_rules: tuple[str, ...] = ()
    silent_seconds: float | None = None
    unread_checkpoints: tuple[tuple[str, str], ...] = ()
    """Labels, and why."""


class Reported(Facts, frozen=True, kw_only=True):
    """What is known only in words: of another process, or from outside of the driver."""

    code = Code.REPORTED
    reason: str
    summary: str
    evidence: dict[str, str] = {}


# -- of a query without a finding ---------------------------------------------------------------


class NotEvaluated(Facts, frozen=True, kw_only=True):
    """An error of ours: the query could not be evaluated."""

    code = Code.NOT_EVALUATED
    failure: Failure | None = None


class NotSeenYet(Facts, frozen=True, kw_only=True):
    """It is expected, and has time to start."""

    code = Code.NOT_SEEN_YET


class Restarting(Facts, frozen=True, kw_only=True):
    """``supervise`` starts it: ``why`` is its last failure, if there is one."""

    code = Code.RESTARTING
    why: str


class Upstream(Facts, frozen=True, kw_only=True):
    """It gets no data from this query, whose state is the reason."""

    code = Code.UPSTREAM
    query: str
    state: QueryState


# -- several findings in one --------------------------------------------------------------------


class Member(msgspec.Struct, frozen=True):
    """A query in a finding of several, and what was found in it."""

    query: str
    facts: Facts


class ShareCause(Facts, frozen=True, kw_only=True):
    """Several queries of the driver have one cause."""

    code = Code.SHARED_CAUSE
    cause: SharedCause
    members: tuple[Member, ...]


class Unnamed(Facts, frozen=True, kw_only=True):
    """Queries without a name: the newest of the most severe, and others, of ``count`` in all."""

    code = Code.UNNAMED
    newest: Member
    others: tuple[Member, ...]
    count: int
