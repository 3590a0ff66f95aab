"""Evidence: what was known of a query, and of its driver, when something was found; as facts.

Ages are seconds at the time of the evaluation. ``words/evidence.py`` says them.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from ..listener.foresight.catching_up import CaughtUp
from ..listener.foresight.resources import MemoryUse
from ..listener.foresight.tasks import StageSpread
from ..listener.probe_report import JobCounts, Trigger
from ..listener.source_polls import OFFSET
from ..listener.state.flow import Dataset
from .facts import BatchIdsWentBack, Slots, Unfinished, Upstream
from .policy import Window


class CommitSeen(str, Enum):
    """How a commit is known."""

    BY_THIS_RUN = "by_this_run"
    BY_EARLIER_RUN = "by_earlier_run"
    IN_CHECKPOINT = "in_checkpoint"
    BEFORE_POLL = "before_poll"
    BEFORE_WATCHING = "before_watching"
    NEVER = "never"


class LastCommit(msgspec.Struct, frozen=True):
    """The last commit, how it is known, and how long ago it was, if that is known."""

    seen: CommitSeen
    batch_id: int | None = None
    age_seconds: float = 0.0


class SourceLag(msgspec.Struct, frozen=True):
    """The lag of one source, and its age; ``is_polled``: the source itself has answered.

    A table's is in ``unit``: versions, or the snapshots after the one that was read.
    """

    description: str
    offsets: float
    age_seconds: float | None
    is_polled: bool
    unit: str = OFFSET


class SourceBacklog(msgspec.Struct, frozen=True):
    """The backlog that Spark reported for one source."""

    description: str
    files: float | None
    size_bytes: float | None
    age_seconds: float | None


class Signal(msgspec.Struct, frozen=True):
    """A signal of the query, and how long ago the last one was received."""

    name: str
    age_seconds: float


class CatchingUp(msgspec.Struct, frozen=True):
    """When the query has caught up; ``wall`` is the Unix time now, None if that is unknown."""

    caught_up: CaughtUp
    wall: float | None


class SlowCause(str, Enum):
    """What makes batches slow; the words of a likely cause begin with it."""

    SKEW = "skew"
    SPILL = "spill"
    GARBAGE_COLLECTION = "garbage_collection"
    SHUFFLE_WAIT = "shuffle_wait"
    SOURCE_LISTING = "source_listing"
    PLANNING = "planning"
    SLOW_COMMIT = "slow_commit"
    STATE_COMMIT = "state_commit"
    WAITING_FOR_SLOTS = "waiting_for_slots"


class LikelyCause(msgspec.Struct, frozen=True, kw_only=True):
    """What explains most of the time that a batch takes beyond the usual."""

    cause: SlowCause
    explained_seconds: float
    """So much of that time."""
    of_tasks: float | None = None
    """Its part of the time of all tasks, where it was measured in these."""
    usual_phase_seconds: float = 0.0
    """How long its phases usually take, where it was measured in these."""
    spread: StageSpread | None = None
    """Of a skew: how long the tasks of a stage take; the longest one may still run."""
    spilled_bytes: int = 0
    is_in_driver: bool = False
    """Whether it is the driver whose memory is collected."""
    holder: str | None = None
    """The label of the query that holds the slots; None if it is not known."""


class Slowness(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that takes longer than usual; ``batch_id`` is None while it is planned.

    ``cause`` is None if nothing explains most of it. ``rows`` is None while it is in flight.
    """

    batch_id: int | None
    seconds: float
    usual_seconds: float
    rows: int | None
    usual_rows: float
    cause: LikelyCause | None = None


class StateSnapshots(msgspec.Struct, frozen=True):
    """The partition whose snapshot of the state was not uploaded for the longest time.

    So many ``batches`` are not in it, about ``seconds`` of work; ``is_none``: no snapshot of it is
    known since the run began. A restart, or the loss of its executor, applies their changes again.
    """

    operator: str
    partition: int
    batches: int
    seconds: float
    is_none: bool


class CommitLog(msgspec.Struct, frozen=True):
    """The newest batches in the checkpoint."""

    planned: int | None
    committed: int | None


class Activity(msgspec.Struct, frozen=True):
    """The jobs of a run that has been busy for long, and the lines that its threads are at.

    ``is_counted``: the counts are those of all batches, else of the active jobs only.
    """

    own: JobCounts
    unowned: JobCounts
    is_counted: bool
    python_line: str
    jvm_stack: tuple[str, ...]


class RunEvidence(msgspec.Struct, frozen=True):
    """What an active run is doing."""

    is_in_flight: bool = False
    batch_id: int | None = None
    """The batch in flight; None if the next one is being planned."""
    in_flight_seconds: float = 0.0
    commit_log: CommitLog | None = None
    spark_says: str = ""
    activity: Activity | None = None


class QueryEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was known of one query; ``window`` is that of the finding."""

    query_id: str
    run_id: str
    last_commit: LastCommit
    window: Window
    unfinished: Unfinished | None = None
    ids_went_back: BatchIdsWentBack | None = None
    lags: tuple[SourceLag, ...] = ()
    backlogs: tuple[SourceBacklog, ...] = ()
    catching_up: CatchingUp | None = None
    """None where it has caught up, or where that is unknown or does not matter."""
    slowness: Slowness | None = None
    """None where batches take no longer than usual, or where that is unknown."""
    state_snapshots: StateSnapshots | None = None
    """None where they are recent, or where Spark does not report them."""
    sources_unread: str = ""
    signals: tuple[Signal, ...] = ()
    inputs: tuple[Dataset, ...] = ()
    outputs: tuple[Dataset, ...] = ()
    """What it reads and writes, as far as Spark shows it."""
    reads: tuple[str, ...] = ()
    """Its sources, which say best which unnamed query it is."""
    trigger: Trigger | None = None
    sink: str = ""
    checkpoint: str = ""
    committed_offsets: str = ""
    run: RunEvidence | None = None


class After(str, Enum):
    """What is counted until a warning becomes critical."""

    IN_FLIGHT = "in_flight"
    NO_PROGRESS = "no_progress"
    NO_TASK = "no_task"


class CriticalAfter(msgspec.Struct, frozen=True):
    """When a warning becomes critical: so many seconds of one, or ``or_in_flight`` seconds."""

    seconds: float
    of: After
    or_in_flight: float | None = None


class OnRestart(msgspec.Struct, frozen=True):
    """What a restart repeats: batches ``first`` to ``last``.

    ``begin`` and ``end`` are the offsets of a planned batch; ``is_done``: the batches were
    committed, but are not in the commit log.
    """

    first: int
    last: int
    begin: str = ""
    end: str = ""
    is_done: bool = False


class DriverEvidence(msgspec.Struct, frozen=True):
    """How many queries of the driver there are, and the first of the unhealthy ones."""

    queries: int
    unhealthy: int
    names: tuple[str, ...]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All evidence of one finding."""

    query: QueryEvidence | None = None
    driver: DriverEvidence | None = None
    slots: Slots | None = None
    critical_after: CriticalAfter | None = None
    on_restart: OnRestart | None = None
    downstream: tuple[str, ...] = ()
    """The queries that it cuts off from data."""
    upstream: Upstream | None = None
    """The query that cuts it off."""
    memory: MemoryUse | None = None
    """That of the driver, where it may be the cause."""
    main_thread: str = ""
    ends_driver: bool = False
    """Whether the main thread waits in ``await_any_failure``, which raises because of this."""


NO_EVIDENCE = Evidence()
