"""The large numbers in the first row."""

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
"""Six fill a row."""


def numbers() -> list[Json]:
    """The panels of the first row."""
    return [
        stat(
            "Dead",
            "Queries that ended with an exception, or should be running and are not. Good: 0. "
            f"Otherwise their data does not arrive: {runbook('StreamingQueryFailed')}, "
            f"{runbook('StreamingQueryStopped')}, {runbook('StreamingQueryMissing')}.",
            [now(in_state("failed", "missing", "stopped_unexpectedly"), "dead")],
            SIZE,
            steps=good_below({1: VERMILLION}),
            empty="no query seen",
        ),
        stat(
            "Stuck",
            "Queries that are alive and make no progress: no commit within their window, or they "
            f"fail and restart repeatedly. Good: 0. {runbook('StreamingQueryStalled')}, "
            f"{runbook('StreamingOffsetsStalled')}, {runbook('StreamingQueryFlapping')}.",
            [now(in_state("stalled", "flapping"), "stuck")],
            SIZE,
            steps=good_below({1: PURPLE}),
            empty="no query seen",
        ),
        stat(
            "Degraded",
            "Queries that commit too slowly, with growing lag, or from offsets that went back. "
            f"Good: 0. {runbook('StreamingBatchSlow')}, "
            f"{runbook('StreamingQueryLagging')}, {runbook('StreamingOffsetsRewound')}.",
            [now(in_state("rewound", "slow", "lagging", "watermark_stuck"), "degraded")],
            SIZE,
            steps=good_below({1: ORANGE}),
            empty="no query seen",
        ),
        stat(
            "Healthy",
            "Queries that make progress, or are known to have nothing to do. The rest of *all* are "
            "dead, stuck, degraded, starting, or completed.",
            [
                now(in_state("running", "idle", "waiting"), "healthy"),
                now(f"count({each(query('state'))})", "of all"),
            ],
            SIZE,
            empty="no query seen",
        ),
        stat(
            "Silent drivers",
            "Applications that reported within a day, had queries that should keep running, and "
            "have sent no heartbeat for a minute. Good: 0. Otherwise this page knows nothing about "
            f"their queries: {runbook('StreamingDriverDown')}.",
            [now(_silent(), "silent")],
            SIZE,
            steps=good_below({1: VERMILLION}),
            empty="no driver seen",
        ),
        stat(
            "Alerts open now",
            "Alerts that querypulse itself has open. Good: 0. The table below lists them.",
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
