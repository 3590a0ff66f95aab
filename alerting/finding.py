"""The alerts, what a rule finds, and the health of a query that follows from it."""

from __future__ import annotations

from enum import Enum

import msgspec

from ..core.states import QueryState

# -- alerts -----------------------------------------------------------------------------------

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


class Wording(msgspec.Struct, frozen=True):
    """The state of a query with an alert, and what its headline says: of one query, of several."""

    state: QueryState
    does: str
    do: str


OF_QUERIES: dict[str, Wording] = {
    QUERY_FAILED: Wording(QueryState.FAILED, "failed", "failed"),
    QUERY_GIVEN_UP: Wording(
        QueryState.FAILED, "is not restarted any more", "are not restarted any more"
    ),
    QUERY_STOPPED: Wording(QueryState.STOPPED_UNEXPECTEDLY, "is not running", "are not running"),
    QUERY_MISSING: Wording(QueryState.MISSING, "is missing", "are missing"),
    QUERY_STALLED: Wording(QueryState.STALLED, "is stalled", "are stalled"),
    BATCH_SLOW: Wording(QueryState.SLOW, "is slow", "are slow"),
    OFFSETS_STALLED: Wording(QueryState.STALLED, "does not advance", "do not advance"),
    OFFSETS_REWOUND: Wording(QueryState.REWOUND, "has rewound offsets", "have rewound offsets"),
    QUERY_LAGGING: Wording(QueryState.LAGGING, "falls behind", "fall behind"),
    INPUT_MISSING: Wording(QueryState.IDLE, "gets no data", "get no data"),
    QUERY_FLAPPING: Wording(QueryState.FLAPPING, "keeps failing", "keep failing"),
    WATERMARK_STUCK: Wording(
        QueryState.WATERMARK_STUCK, "makes no event-time progress", "have a stuck watermark"
    ),
    DATA_LOSS_RISK: Wording(QueryState.LAGGING, "is about to lose data", "may lose data"),
    ROWS_DROPPED: Wording(QueryState.LAGGING, "drops late rows", "drop late rows"),
    QUERY_FALLING_BEHIND: Wording(QueryState.SLOW, "falls behind", "take ever longer"),
}

WITH_CODE = frozenset({QUERY_STALLED, BATCH_SLOW, QUERY_FLAPPING})
"""Alerts whose reasons may begin with a code; others begin with names of users."""


# -- findings and health ----------------------------------------------------------------------


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
    waited for so long that somebody must act. What ``is_past`` is an event that is over: it hides
    no other finding, and is no state.
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
    is_past: bool = False


def code_last(reason: str) -> str:
    """Move a code to the end: ``batch_hung: no task done`` -> ``no task done (batch_hung)``."""
    code = code_of(reason)
    return f"{reason.removeprefix(f'{code}: ')} ({code})" if code else reason


def code_of(reason: str) -> str:
    """The code with which a reason begins, such as ``batch_hung``; empty without one."""
    code, colon, _ = reason.partition(": ")
    is_code = code.replace("_", "").isalpha() and code == code.lower()
    return code if colon and is_code else ""


def finding_about(
    label: str,
    alertname: str,
    severity: Severity,
    reason: str,
    facts: dict[str, str],
    *,
    says: str = "",
    does: str = "",
    state: QueryState | None = None,
    cause: str = "",
    is_past: bool = False,
) -> Finding:
    """The finding about one query; ``facts`` without text are left out.

    The summary says what the query ``does``, as usual for the alert if empty, and the reason, or
    ``says`` in its place; a code at its beginning goes to the end.
    """
    usual = OF_QUERIES[alertname]
    says = says or (code_last(reason) if alertname in WITH_CODE else reason)
    return Finding(
        alertname,
        label,
        severity,
        state or usual.state,
        reason,
        summary=f"{label} {does or usual.does}: {says}",
        evidence={name: text for name, text in facts.items() if text},
        cause=cause,
        is_past=is_past,
    )


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
