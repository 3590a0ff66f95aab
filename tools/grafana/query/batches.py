"""Whether batches are committed, and what they spend their time on."""

from __future__ import annotations

from tools.grafana.fields import Json, fixed, limit, lines_like, target_lines
from tools.grafana.links import runbook
from tools.grafana.palette import BLUE, GREEN, GREY, PHASES, PURPLE, SKY, VERMILLION
from tools.grafana.panels import drawn, graph
from tools.grafana.promql import age, each, per_minute, quantile, query

HALF = (12, 8)
THIRD = (8, 8)
WINDOW = drawn(each(query("stall_window_seconds")), "{{query}}: window")
TRIGGER = drawn(each(query("trigger_interval_seconds")), "{{query}}: trigger")


def commit_age() -> Json:
    """The age of the last commit, and its limit."""
    return graph(
        "Time since the last commit, and its window",
        "Good: a sawtooth below the dashed line. *Activity* is a commit, or proof that there is "
        "nothing to do: without it for longer than the window, the query is stalled: "
        f"{runbook('StreamingQueryStalled')}. The window follows the trigger and recent batches.",
        [
            drawn(age(query("last_activity_timestamp_seconds")), "{{query}}: since activity"),
            WINDOW,
            drawn(age(query("last_commit_timestamp_seconds")), "{{query}}: since commit"),
        ],
        HALF,
        unit="s",
        color=SKY,
        overrides=[
            limit("B", VERMILLION),
            target_lines("C", color=fixed(GREEN), custom__fillOpacity=0),
        ],
        empty="no commit in the time shown",
    )


def in_flight() -> Json:
    """The batch that is running; other panels show it when it has ended."""
    return graph(
        "Batch in flight, and its window",
        "How long the current batch has been running. Good: short teeth, or nothing. It climbs "
        f"while its tasks finish: {runbook('StreamingBatchSlow')}. The time without progress "
        f"climbs with it because no task finishes: {runbook('StreamingQueryStalled')}; the alert "
        "shows where the stream's thread is blocked.",
        [
            drawn(each(query("batch_in_flight_seconds")), "{{query}}: in flight"),
            WINDOW,
            drawn(each(query("no_progress_seconds")), "{{query}}: no progress"),
        ],
        HALF,
        unit="s",
        color=SKY,
        overrides=[limit("B", VERMILLION), target_lines("C", color=fixed(PURPLE))],
        empty="no batch is in flight",
    )


def duration() -> Json:
    """How long batches take."""
    buckets = query("batch_duration_seconds_bucket")
    return graph(
        "Batch duration",
        "Batches that ended recently, from a histogram. Good: flat, and below the dashed line, the "
        "trigger interval if there is one; above it the query cannot keep up. "
        f"Rising: {runbook('StreamingBatchSlow')}. No line: no batch has ended.",
        [
            drawn(quantile(0.5, buckets, by="app, query"), "{{query}}: half are faster"),
            drawn(quantile(0.99, buckets, by="app, query"), "{{query}}: 99 % are faster"),
            TRIGGER,
        ],
        THIRD,
        unit="s",
        overrides=[
            target_lines("A", color=fixed(SKY)),
            target_lines("B", color=fixed(BLUE)),
            limit("C", GREY),
        ],
        empty="no batch ended in the time shown",
    )


def phases() -> Json:
    """The last batch by Spark's phases, stacked."""
    by_phase = each(query("phase_duration_seconds"), by="app, query, phase")
    painted = [lines_like(f": {phase}$", color=fixed(color)) for phase, color in PHASES.items()]
    return graph(
        "Where the last batch spent its time",
        "Spark's phases, stacked; the dashed line is the trigger interval. *addBatch* is your own "
        "work and the sink; *latestOffset* and *getBatch* the source; *walCommit* and "
        "*commitOffsets* the checkpoint's storage; *queryPlanning* grows with the number of files "
        "or columns. Investigate the phase that grows.",
        [drawn(by_phase, "{{query}}: {{phase}}"), TRIGGER],
        THIRD,
        unit="s",
        stacked=True,
        overrides=[*painted, limit("B", GREY)],
        empty="no batch ended in the time shown",
    )


def commits() -> Json:
    """How often it commits."""
    return graph(
        "Commits",
        "Batches committed per minute. Good: steady. At 0 it is idle, or stalled: the state above "
        "shows which.",
        [drawn(per_minute(query("commits_total")), "{{query}}")],
        THIRD,
        unit="cpm",
        color=GREEN,
        bars=True,
    )
