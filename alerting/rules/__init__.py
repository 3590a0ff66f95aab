"""The rules about a query, by the alert that each raises; the most severe come first."""

from __future__ import annotations

from collections.abc import Callable

from .. import finding as alert
from ..finding import Finding
from . import data, losses, progress, query_ends
from .context import RuleContext

OF_QUERIES: dict[str, Callable[[RuleContext], Finding | None]] = {
    alert.QUERY_GIVEN_UP: query_ends.query_given_up,
    alert.QUERY_FAILED: query_ends.query_failed,
    alert.QUERY_STOPPED: query_ends.query_stopped,
    alert.QUERY_MISSING: query_ends.query_missing,
    alert.QUERY_STALLED: progress.query_stalled,
    alert.OFFSETS_STALLED: progress.offsets_stalled,
    alert.QUERY_FLAPPING: query_ends.query_flapping,
    alert.OFFSETS_REWOUND: progress.offsets_rewound,
    alert.BATCH_SLOW: progress.batch_slow,
    alert.DATA_LOSS_RISK: losses.data_loss_risk,
    alert.QUERY_LAGGING: data.query_lagging,
    alert.QUERY_FALLING_BEHIND: data.query_falling_behind,
    alert.WATERMARK_STUCK: data.watermark_stuck,
    alert.ROWS_DROPPED: data.rows_dropped,
    # Last: what has failed, is stalled or lags has another alert, which says why it reads nothing.
    alert.INPUT_MISSING: losses.input_missing,
}
ORDER = tuple(OF_QUERIES.values())
OF_DRIVER = (alert.DRIVER_DOWN, alert.EVENTS_MISSING, alert.MONITORING_DEGRADED)
ALERT_NAMES = (*OF_QUERIES, *OF_DRIVER)
"""Every alert that querypulse itself sends."""
