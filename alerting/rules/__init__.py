"""The rules, most severe first: the first that fires wins. Each has a file, an alert, a runbook."""

from __future__ import annotations

from collections.abc import Callable

from ..finding import Finding
from ..rule_context import RuleContext
from . import (
    batch_slow,
    data_loss_risk,
    driver_down,
    events_missing,
    monitoring_degraded,
    offsets_rewound,
    offsets_stalled,
    query_failed,
    query_falling_behind,
    query_flapping,
    query_given_up,
    query_lagging,
    query_missing,
    query_stalled,
    query_stopped,
    rows_dropped,
    streaming_input_missing,
    watermark_stuck,
)

OF_QUERIES = (
    query_given_up,
    query_failed,
    query_stopped,
    query_missing,
    query_stalled,
    offsets_stalled,
    query_flapping,
    offsets_rewound,
    batch_slow,
    data_loss_risk,
    query_lagging,
    query_falling_behind,
    watermark_stuck,
    rows_dropped,
    streaming_input_missing,
)
ORDER: tuple[Callable[[RuleContext], Finding | None], ...] = tuple(
    rule.check for rule in OF_QUERIES
)
ALERT_NAMES = tuple(
    rule.NAME for rule in (*OF_QUERIES, driver_down, events_missing, monitoring_degraded)
)
"""Every alert that querypulse itself sends."""

__all__ = ["ALERT_NAMES", "ORDER"]
