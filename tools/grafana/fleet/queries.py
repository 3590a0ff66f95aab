"""Open alerts, and the state of every query."""

from __future__ import annotations

from tools.grafana import links
from tools.grafana.fields import SEVERITY_WORDS, STATE_WORDS, Json, column, good_below
from tools.grafana.links import runbook
from tools.grafana.palette import ORANGE, VERMILLION
from tools.grafana.panels import drawn, graph, now, table, timeline
from tools.grafana.promql import (
    OPEN_ALERTS,
    PROMETHEUS_ALERTS,
    age,
    each,
    meanwhile,
    open_for,
    per_minute,
    query,
    share_of_window,
    source,
    state_number,
)

ROW = "app, query, instance"
ROW_LINKS = [links.query_of_row("__data.fields.app", "__data.fields.query")]
LINE_LINKS = [links.query_of_row("__field.labels.app", "__field.labels.query")]


def open_alerts() -> Json:
    """The alerts that querypulse or Prometheus has open."""
    return table(
        "Open alerts",
        "The alert links to its runbook, the query to its own dashboard. querypulse alerts within "
        "seconds. Prometheus watches from outside and waits longer; only it can report that a "
        "driver is down. Both times count the last six hours.",
        {
            "severity": None,
            "alertname": None,
            "app": None,
            "query": None,
            "open in querypulse for": now(open_for(OPEN_ALERTS)),
            "open in Prometheus for": now(open_for(PROMETHEUS_ALERTS)),
        },
        (24, 7),
        overrides=[
            column(
                "severity",
                mappings=SEVERITY_WORDS,
                custom__cellOptions={"type": "color-background", "mode": "basic"},
                custom__width=100,
            ),
            column("alertname", links=[links.runbook_of_row()]),
            column("query", links=ROW_LINKS),
            column("open in querypulse for", unit="dtdurations"),
            column("open in Prometheus for", unit="dtdurations"),
        ],
        sort=("severity", False),
        empty="no alert is open",
    )


def states() -> Json:
    """Every query's state over time."""
    return timeline(
        "State of every query",
        "Good: a green or light blue bar up to the right edge. A gap: no data, because the driver "
        "or its monitor was down. Click to open the query.",
        [drawn(state_number(), "{{app}} / {{query}}")],
        (24, 9),
        links=LINE_LINKS,
    )


def queries() -> Json:
    """One row for each query."""
    lag = each(source("lag_offsets"), by=ROW, how="sum")
    last = each(query("phase_duration_seconds"), by=ROW, how="sum")
    failure = each(query("failure_info"), by=f"{ROW}, error_class")
    return table(
        "Every query",
        "*of its window*: how much of the time allowed without a commit is used up; 100 % is a "
        "stall. Proof of idleness counts as a commit. The query links to its own dashboard, the "
        "driver to its status page.",
        {
            "app": None,
            "query": None,
            "state": now(state_number(by=ROW)),
            "error_class": None,
            "of its window": now(share_of_window(by=ROW)),
            "commit age": now(age(query("last_commit_timestamp_seconds"), by=ROW)),
            "window": now(each(query("stall_window_seconds"), by=ROW)),
            "lag": now(lag),
            "last batch": now(last),
            "alerts on": now(each(query("alerting_enabled"), by=ROW)),
            "restarts": now(meanwhile(query("restarts_total"), by=ROW)),
            "open": now(failure),
            "instance": None,
        },
        (24, 12),
        overrides=_query_columns(),
        sort=("state", True),
        empty="no query seen",
        unseen=["open"],
    )


def _query_columns() -> list[Json]:
    ground = {"type": "color-background", "mode": "basic"}
    seconds = ("commit age", "window", "last batch")
    return [
        column("query", links=ROW_LINKS),
        column(
            "state",
            mappings=STATE_WORDS,
            custom__cellOptions=ground,
            custom__align="left",
            custom__width=95,
        ),
        column(
            "of its window",
            unit="percentunit",
            decimals=0,
            min=0,
            max=1,
            custom__width=140,
            thresholds=good_below({0.5: ORANGE, 1: VERMILLION}),
            custom__cellOptions={"type": "gauge", "mode": "basic", "valueDisplayMode": "text"},
        ),
        *(column(name, unit="s", decimals=1, custom__width=100) for name in seconds),
        column("lag", unit="short", custom__width=80),
        column("alerts on", unit="bool_yes_no", custom__width=85),
        column("restarts", custom__width=85),
        column("instance", links=[links.status_page_of_row()]),
    ]


def commits() -> Json:
    """How often each query commits."""
    return graph(
        "Commits",
        "Batches committed per minute. Good: a steady line for each query that has input. At 0: "
        f"idle, or stalled; the states above show which. {runbook('StreamingQueryStalled')}.",
        [drawn(per_minute(query("commits_total")), "{{app}} / {{query}}")],
        (12, 8),
        unit="cpm",
        links=LINE_LINKS,
    )


def lag_of_queries() -> Json:
    """The backlog of each query."""
    return graph(
        "Lag",
        "Unread offsets in the sources of each query. Good: small, or falling. Rising steadily: "
        f"{runbook('StreamingQueryLagging')}. Sources that report no lag have no line.",
        [drawn(each(source("lag_offsets"), how="sum"), "{{app}} / {{query}}")],
        (12, 8),
        unit="short",
        at_least=1,
        empty="no source reports its lag",
        links=LINE_LINKS,
    )
