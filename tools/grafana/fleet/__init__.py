"""*Fleet*: every job and query at a glance. The first page to open when an alert fires."""

from __future__ import annotations

from tools.grafana import links
from tools.grafana.fields import Json
from tools.grafana.fleet import flow, monitors, numbers, queries
from tools.grafana.frame import Section, choice, dashboard, drivers
from tools.grafana.promql import OF_DRIVER


def fleet_dashboard() -> Json:
    """The dashboard as JSON."""
    here = [*numbers.numbers(), queries.open_alerts(), queries.states(), queries.queries()]
    watching = [monitors.drivers(), monitors.events(), monitors.callback(), monitors.probe()]
    sections: list[Section] = [
        ("", here),
        ("Progress", [queries.commits(), queries.lag_of_queries()]),
        ("Streams that feed streams", [flow.edges(), flow.end_to_end_age()]),
        ("Are alerts delivered?", [monitors.pages(), monitors.receivers()]),
        ("The monitors themselves", watching),
    ]
    series = f"spark_streaming_query_state{{{OF_DRIVER}"
    return dashboard(
        links.FLEET,
        "querypulse / Fleet",
        "Every Spark driver and every streaming query that querypulse watches, at a glance.",
        sections,
        variables=[
            *drivers(),
            choice("app", "Application", f"{series}}}"),
            choice("query", "Query", f'{series}, app=~"$app"}}'),
        ],
        links=[
            links.to_dashboard("Query", links.QUERY, "One query in depth"),
            links.to_runbooks(),
        ],
        # Annotations of one query out of two hundred would shade the lines of all.
        noted=False,
    )
