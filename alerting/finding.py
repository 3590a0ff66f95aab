"""What a rule finds, and the health of a query that follows from it."""

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
INPUT_MISSING = "StreamingInputMissing"
DRIVER_DOWN = "StreamingDriverDown"
EVENTS_MISSING = "QuerypulseEventsMissing"
MONITORING_DEGRADED = "QuerypulseMonitoringDegraded"


class Severity(str, Enum):
    """How urgent an alert is."""

    CRITICAL = "critical"
    WARNING = "warning"


WHOLE_DRIVER = "*"
"""Replaces the query's name in an alert about all queries of the driver."""


class Finding(msgspec.Struct, frozen=True):
    """A problem that one rule found in one query.

    ``reason`` is one readable line; ``evidence`` becomes annotations. Findings of one name that
    share a ``cause`` become one incident of the whole driver. ``members`` are the labels of the
    unnamed queries that the finding lists. ``holder`` is the other query for which this one has
    waited for so long that somebody must act.
    """

    alertname: str
    query: str
    severity: Severity
    state: QueryState
    reason: str
    summary: str
    evidence: dict[str, str]
    cause: str = ""
    members: tuple[str, ...] = ()
    holder: str = ""


NOT_WORKING = frozenset(
    {QueryState.FAILED, QueryState.MISSING, QueryState.STOPPED_UNEXPECTEDLY, QueryState.STALLED}
)
"""The states of a query that processes nothing, although it should."""


class QueryHealth(msgspec.Struct, frozen=True, gc=False):
    """The state of one query, the reason, its stall window in seconds, and its other limits.

    An ``ignored`` query has a state, but it raises no alert here and does not affect the process:
    the settings ignore it, or another process that monitors the same JVM reports it.
    """

    state: QueryState
    reason: str = ""
    window_seconds: float | None = None
    ignored: bool = False
    reported_elsewhere: bool = False
    expected_input_seconds: float | None = None
    severity: Severity | None = None
    """The severity of its most severe finding; None without one."""
    restarted: bool = False
    """Whether ``supervise`` restarts it, so that its failure is not final."""
    is_unknown: bool = False
    """An error of ours: nothing opens or ends an alert of the query."""
