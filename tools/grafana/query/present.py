"""The state of the query, now and over time."""

from __future__ import annotations

from tools.grafana import links
from tools.grafana.fields import SEVERITY_WORDS, STATE_WORDS, Json, column, good_below
from tools.grafana.links import runbook
from tools.grafana.palette import ORANGE, VERMILLION
from tools.grafana.panels import drawn, now, stat, table, timeline
from tools.grafana.promql import (
    OPEN_ALERTS,
    PROMETHEUS_ALERTS,
    age,
    each,
    meanwhile,
    open_for,
    query,
    share_of_window,
    source,
    state_number,
)

SIZE = (4, 4)
"""Six fill a row."""


def numbers() -> list[Json]:
    """The first row: what matters now, as large numbers."""
    return [
        stat(
            "State",
            "The query's health as querypulse evaluates it. Green or light blue is good; "
            "docs/rules.md explains each state.",
            [now(state_number(), "{{query}}")],
            SIZE,
            mappings=STATE_WORDS,
            empty="not seen",
        ),
        stat(
            "Window used up",
            "How much of the time allowed without a commit is used up. 100 % is a stall. Proof of "
            "idleness counts as a commit.",
            [now(share_of_window(), "{{query}}")],
            SIZE,
            unit="percentunit",
            decimals=0,
            steps=good_below({0.5: ORANGE, 1: VERMILLION}),
            empty="not yet, or over",
        ),
        stat(
            "Last commit",
            "How long ago the current run committed a batch.",
            [now(age(query("last_commit_timestamp_seconds")), "{{query}}")],
            SIZE,
            unit="s",
            decimals=0,
            empty="no commit yet",
        ),
        stat(
            "Lag",
            "Unread offsets in all its sources. Good: small, or falling. "
            f"{runbook('StreamingQueryLagging')}.",
            [now(each(source("lag_offsets"), how="sum"), "{{query}}")],
            SIZE,
            unit="short",
            empty="its sources do not report it",
        ),
        stat(
            "Restarts in this time",
            f"In the time shown. Good: 0, or planned ones. {runbook('StreamingQueryFlapping')}.",
            [now(meanwhile(query("restarts_total")), "{{query}}")],
            SIZE,
            steps=good_below({1: ORANGE, 3: VERMILLION}),
            empty="not known yet",
        ),
        stat(
            "Running since",
            "When the current run started, or was first seen.",
            [now(f"{each(query('start_timestamp_seconds'))} * 1000", "{{query}}")],
            SIZE,
            unit="dateTimeFromNow",
            empty="not known yet",
        ),
    ]


def states() -> Json:
    """The state over time."""
    return timeline(
        "State over time",
        "Good: green or light blue up to the right edge. A gap: no data, because the driver or "
        f"its monitor was down ({runbook('StreamingDriverDown')}).",
        [drawn(state_number(), "{{query}}")],
        (24, 4),
    )


def run() -> Json:
    """The ids and settings of the current run."""
    by = "app, query, instance"
    widths = {"app": 130, "query": 130, "last batch": 95, "trigger": 150, "sink": 140}
    widths |= {"query_id": 290, "run_id": 290}
    return table(
        "Current run",
        "The current run, with the ids that Spark's UI, its logs and the checkpoint use. The "
        "driver links to its status page.",
        {
            "app": None,
            "query": None,
            "last batch": now(each(query("last_commit_batch_id"), by=by)),
            "trigger": None,
            "sink": None,
            "query_id": None,
            "run_id": None,
            "instance": None,
            "there": now(each(query("info"), by=f"{by}, trigger, sink, query_id, run_id")),
        },
        (24, 4),
        overrides=[
            *(column(name, custom__width=width) for name, width in widths.items()),
            column("instance", links=[links.status_page_of_row()]),
        ],
        sort=("query", False),
        empty="no run was seen",
        unseen=["there"],
    )


def alerts() -> Json:
    """Open alerts of this query, and of the driver as a whole."""
    return table(
        "Open alerts",
        "Alerts of this query, and of its whole application (`*`). The alert links to its runbook; "
        "both times count the last six hours.",
        {
            "severity": None,
            "alertname": None,
            "query": None,
            "in querypulse for": now(open_for(OPEN_ALERTS)),
            "in Prometheus for": now(open_for(PROMETHEUS_ALERTS)),
            "app": None,
        },
        (24, 5),
        overrides=[
            column(
                "severity",
                mappings=SEVERITY_WORDS,
                custom__cellOptions={"type": "color-background", "mode": "basic"},
            ),
            column("alertname", links=[links.runbook_of_row()]),
            column("in querypulse for", unit="dtdurations"),
            column("in Prometheus for", unit="dtdurations"),
        ],
        sort=("severity", False),
        empty="no alert is open",
    )
