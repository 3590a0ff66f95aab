"""Every kind of alert, once: what it is about, and how it is treated; and the codes of causes.

A new kind is a row here, a rule in ``rules/``, its facts in ``facts.py``, its words in ``words/``,
and a runbook. Its runbook in ``dashboards/runbooks/`` has its name, and the next steps.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from ..core.states import QueryState

QUERY_GIVEN_UP = "StreamingQueryGivenUp"
QUERY_FAILED = "StreamingQueryFailed"
QUERY_STOPPED = "StreamingQueryStopped"
QUERY_MISSING = "StreamingQueryMissing"
QUERY_STALLED = "StreamingQueryStalled"
OFFSETS_STALLED = "StreamingOffsetsStalled"
QUERY_FLAPPING = "StreamingQueryFlapping"
OFFSETS_REWOUND = "StreamingOffsetsRewound"
BATCH_SLOW = "StreamingBatchSlow"
DATA_LOSS_RISK = "StreamingDataLossRisk"
QUERY_LAGGING = "StreamingQueryLagging"
QUERY_FALLING_BEHIND = "StreamingQueryFallingBehind"
WATERMARK_STUCK = "StreamingWatermarkStuck"
ROWS_DROPPED = "StreamingRowsDropped"
STATE_GROWING = "StreamingStateGrowing"
INPUT_MISSING = "StreamingInputMissing"
DRIVER_DOWN = "StreamingDriverDown"
DRIVER_MEMORY = "StreamingDriverMemory"
DISK_FILLING = "StreamingDiskFilling"
EVENTS_MISSING = "QuerypulseEventsMissing"
MONITORING_DEGRADED = "QuerypulseMonitoringDegraded"


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """How alerts of one name are treated, and what their headlines say.

    ``state`` is the state of a query with such a finding. ``does`` and ``do`` are the verbs of the
    headline: of one query, of several; of the driver, ``does`` is its whole beginning.
    ``recovers`` is what the resolved message says of the driver. ``is_fact``: Spark itself has
    reported it; it opens at once, and nothing inhibits it. ``is_independent``: it is reported
    beside the most severe finding of its query. ``stops_commits``: a query with it commits nothing.
    ``shows_main_thread``: where the job's main thread is belongs to its evidence.
    """

    name: str
    state: QueryState
    does: str = ""
    do: str = ""
    recovers: str = ""
    is_of_driver: bool = False
    is_fact: bool = False
    is_independent: bool = False
    stops_commits: bool = False
    shows_main_thread: bool = False


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        # Kinds of queries, the most severe first.
        Kind(
            name=QUERY_GIVEN_UP,
            state=QueryState.FAILED,
            does="is not restarted any more",
            do="are not restarted any more",
            is_fact=True,
            stops_commits=True,
        ),
        Kind(
            name=QUERY_FAILED,
            state=QueryState.FAILED,
            does="failed",
            do="failed",
            is_fact=True,
            stops_commits=True,
            shows_main_thread=True,
        ),
        Kind(
            name=QUERY_STOPPED,
            state=QueryState.STOPPED_UNEXPECTEDLY,
            does="is not running",
            do="are not running",
            stops_commits=True,
            shows_main_thread=True,
        ),
        Kind(
            name=QUERY_MISSING,
            state=QueryState.MISSING,
            does="is missing",
            do="are missing",
            stops_commits=True,
        ),
        Kind(
            name=QUERY_STALLED,
            state=QueryState.STALLED,
            does="is stalled",
            do="are stalled",
            stops_commits=True,
            shows_main_thread=True,
        ),
        Kind(
            name=OFFSETS_STALLED,
            state=QueryState.STALLED,
            does="does not advance",
            do="do not advance",
        ),
        Kind(
            name=QUERY_FLAPPING,
            state=QueryState.FLAPPING,
            does="keeps failing",
            do="keep failing",
            is_independent=True,
        ),
        Kind(
            name=OFFSETS_REWOUND,
            state=QueryState.REWOUND,
            does="has rewound offsets",
            do="have rewound offsets",
        ),
        Kind(name=BATCH_SLOW, state=QueryState.SLOW, does="is slow", do="are slow"),
        Kind(
            name=DATA_LOSS_RISK,
            state=QueryState.LAGGING,
            does="is about to lose data",
            do="may lose data",
            is_independent=True,
        ),
        Kind(name=QUERY_LAGGING, state=QueryState.LAGGING, does="falls behind", do="fall behind"),
        Kind(
            name=QUERY_FALLING_BEHIND,
            state=QueryState.SLOW,
            does="falls behind",
            do="take ever longer",
        ),
        Kind(
            name=WATERMARK_STUCK,
            state=QueryState.WATERMARK_STUCK,
            does="makes no event-time progress",
            do="have a stuck watermark",
        ),
        Kind(
            name=ROWS_DROPPED,
            state=QueryState.LAGGING,
            does="drops late rows",
            do="drop late rows",
        ),
        Kind(
            name=STATE_GROWING,
            state=QueryState.RUNNING,
            does="keeps more and more state",
            do="keep more and more state",
            is_independent=True,
        ),
        # Last: what has failed, is stalled or lags has another alert, which says why it reads
        # nothing.
        Kind(name=INPUT_MISSING, state=QueryState.IDLE, does="gets no data", do="get no data"),
        # Kinds of the driver and of the monitor.
        Kind(
            name=DRIVER_DOWN,
            state=QueryState.MISSING,
            does="driver is down",
            recovers="driver is up again",
            is_of_driver=True,
            is_fact=True,
        ),
        Kind(
            name=DRIVER_MEMORY,
            state=QueryState.RUNNING,
            does="driver runs out of memory",
            recovers="driver has memory again",
            is_of_driver=True,
        ),
        Kind(
            name=DISK_FILLING,
            state=QueryState.RUNNING,
            does="a disk of the driver fills up",
            recovers="the disks of the driver have room again",
            is_of_driver=True,
        ),
        Kind(
            name=EVENTS_MISSING,
            state=QueryState.RUNNING,
            does="querypulse does not receive Spark's events",
            recovers="querypulse receives Spark's events again",
            is_of_driver=True,
        ),
        Kind(
            name=MONITORING_DEGRADED,
            state=QueryState.RUNNING,
            does="querypulse cannot see every query",
            recovers="querypulse sees every query again",
            is_of_driver=True,
        ),
    )
}
"""By name, in the order of prominence."""

ALERT_NAMES = tuple(KINDS)
"""Every alert that querypulse itself sends."""


def kind_of(alertname: str) -> Kind:
    """Return the kind of an alert; one that another version has sent may be unknown here."""
    known = KINDS.get(alertname)
    return Kind(name=alertname, state=QueryState.RUNNING) if known is None else known


# -- codes ------------------------------------------------------------------------------------


class Code(str, Enum):
    """What exactly is wrong, in one word."""

    # Runs that ended, or never began
    FAILED = "failed"
    GIVEN_UP = "given_up"
    STOPPED = "stopped"
    CHECKPOINT_TAKEN = "checkpoint_taken"
    SESSION_EXPIRED = "session_expired"
    PROGRAM_ENDED = "program_ended"
    NO_ACTIVITY = "no_activity"
    START_OVERDUE = "start_overdue"
    NEVER_SEEN = "never_seen"
    NOT_COMPLETED = "not_completed"
    POISON_BATCH = "poison_batch"
    MANY_FAILURES = "many_failures"
    # Batches and offsets
    SCHEDULER_STOPPED = "scheduler_stopped"
    TASK_RUNNING = "task_running"
    NO_EXECUTORS = "no_executors"
    EXECUTORS_LOST = "executors_lost"
    WAITING_FOR_SLOTS = "waiting_for_slots"
    BATCH_HUNG = "batch_hung"
    SOURCE_HUNG = "source_hung"
    COMMIT_LOG_BEHIND = "commit_log_behind"
    SILENT = "silent"
    NO_TRIGGER = "no_trigger"
    WORKING = "working"
    RETRYING = "retrying"
    NOT_COMMITTED = "not_committed"
    SLOTS_HELD = "slots_held"
    OFFSETS_STUCK = "offsets_stuck"
    OFFSETS_WENT_BACK = "offsets_went_back"
    BATCH_IDS_WENT_BACK = "batch_ids_went_back"
    # Unread, late and lost data
    WAITED_TOO_LONG = "waited_too_long"
    LAG_RISES = "lag_rises"
    OPEN_TRANSACTION = "open_transaction"
    BATCHES_GROW = "batches_grow"
    WATERMARK_STUCK = "watermark_stuck"
    WATERMARK_AHEAD = "watermark_ahead"
    ROWS_DROPPED = "rows_dropped"
    STATE_GROWS = "state_grows"
    RETENTION_USED = "retention_used"
    SKIPPED_BY_SINK = "skipped_by_sink"
    SINK_REMEMBERS = "sink_remembers"
    PASSED_OVER = "passed_over"
    FOLDER_GONE = "folder_gone"
    READS_NOTHING = "reads_nothing"
    NO_ROWS = "no_rows"
    # The driver and the monitor
    JVM_ENDED = "jvm_ended"
    HEAP_FULL = "heap_full"
    IN_COLLECTION = "in_collection"
    CONTAINER_FULL = "container_full"
    DISK_FULL = "disk_full"
    EVENTS_MISSING = "events_missing"
    DEGRADED = "degraded"
    # Several findings in one; what another process has found
    SHARED_CAUSE = "shared_cause"
    UNNAMED = "unnamed"
    REPORTED = "reported"
    # Of a query without a finding
    NOT_EVALUATED = "not_evaluated"
    NOT_SEEN_YET = "not_seen_yet"
    RESTARTING = "restarting"
    UPSTREAM = "upstream"


SHOWN_CODES = frozenset(
    {
        Code.NOT_COMPLETED,
        Code.POISON_BATCH,
        Code.SCHEDULER_STOPPED,
        Code.TASK_RUNNING,
        Code.NO_EXECUTORS,
        Code.EXECUTORS_LOST,
        Code.WAITING_FOR_SLOTS,
        Code.BATCH_HUNG,
        Code.SOURCE_HUNG,
        Code.COMMIT_LOG_BEHIND,
        Code.SILENT,
        Code.NO_TRIGGER,
        Code.RETRYING,
        Code.NOT_COMMITTED,
        Code.SLOTS_HELD,
    }
)
"""Codes with which reasons begin."""


class SharedCause(str, Enum):
    """What several queries of a driver may have in common: their findings become one incident."""

    JVM_SILENT = "jvm_silent"
    SCHEDULER_STOPPED = "scheduler_stopped"
    CONTEXT_STOPPED = "context_stopped"
    PROGRAM_ENDED = "program_ended"
    SESSION_ENDED = "session_ended"
