"""The numbers that matter at three in the morning."""

from __future__ import annotations

from tools.grafana.fields import Json, good_below
from tools.grafana.links import runbook
from tools.grafana.palette import ORANGE, PURPLE, VERMILLION
from tools.grafana.panels import now, stat
from tools.grafana.promql import (
    ALERT_LABELS,
    OPEN_ALERTS,
    driver,
    each,
    in_state,
    query,
    silent_apps,
)

SIZE = (4, 4)
"""Six fill a line."""


def numbers() -> list[Json]:
    """The panels of the first line."""
    return [
        stat(
            "Dead",
            "Queries that ended with an exception, or should be there and are not. Good: 0. "
            f"Otherwise nothing of their data arrives: {runbook('StreamingQueryFailed')}, "
            f"{runbook('StreamingQueryStopped')}, {runbook('StreamingQueryMissing')}.",
            [now(in_state("failed", "missing", "stopped_unexpectedly"), "dead")],
            SIZE,
            steps=good_below({1: VERMILLION}),
            empty="no query seen",
        ),
        stat(
            "Stuck",
            "Queries that are alive and get nowhere: no commit within their window, or failing and "
            f"restarting again and again. Good: 0. {runbook('StreamingQueryStalled')}, "
            f"{runbook('StreamingOffsetsStalled')}, {runbook('StreamingQueryFlapping')}.",
            [now(in_state("stalled", "flapping"), "stuck")],
            SIZE,
            steps=good_below({1: PURPLE}),
            empty="no query seen",
        ),
        stat(
            "Degraded",
            "Queries that work, but slower than they should, ever further behind, or on offsets "
            f"that went back. Good: 0. {runbook('StreamingBatchSlow')}, "
            f"{runbook('StreamingQueryLagging')}, {runbook('StreamingOffsetsRewound')}.",
            [now(in_state("rewound", "slow", "lagging", "watermark_stuck"), "degraded")],
            SIZE,
            steps=good_below({1: ORANGE}),
            empty="no query seen",
        ),
        stat(
            "Healthy",
            "Queries that run, or have nothing to do and prove it. What is missing to *all* is "
            "dead, stuck, degraded, just starting, or over.",
            [
                now(in_state("running", "idle", "waiting"), "healthy"),
                now(f"count({each(query('state'))})", "of all"),
            ],
            SIZE,
            empty="no query seen",
        ),
        stat(
            "Silent drivers",
            "Applications that were there today, had queries that should go on, and whose monitor "
            "has not been heard of for a minute. Good: 0. Otherwise nothing on this page can speak "
            f"for their queries: {runbook('StreamingDriverDown')}.",
            [now(_silent(), "silent")],
            SIZE,
            steps=good_below({1: VERMILLION}),
            empty="no driver seen",
        ),
        stat(
            "Alerts open now",
            "What querypulse itself holds for wrong now. Good: 0. The table below names them.",
            [now(_open_alerts(), "open")],
            SIZE,
            steps=good_below({1: VERMILLION}),
            empty="no query seen",
        ),
    ]


def _silent() -> str:
    return f"count({silent_apps()}) or 0 * count({driver('heartbeat_timestamp_seconds')})"


def _open_alerts() -> str:
    return f"sum({each(OPEN_ALERTS, by=ALERT_LABELS)}) or 0 * count({query('active')})"
