"""*Query*: one streaming query in depth, from "is it committing?" to "what went wrong?"."""

from __future__ import annotations

from tools.grafana import links
from tools.grafana.fields import Json
from tools.grafana.frame import Section, choice, dashboard, drivers
from tools.grafana.promql import OF_DRIVER
from tools.grafana.query import backlog, batches, data, failures, present, retention


def query_dashboard() -> Json:
    """The dashboard as JSON."""
    event_time = [data.watermark(), data.late_rows(), data.state_rows(), data.state_memory()]
    keeping_up = [data.rates(), data.without_rows(), data.lag(), data.freshness()]
    sections: list[Section] = [
        ("", [*present.numbers(), present.states(), present.alerts(), present.run()]),
        ("Does it commit?", [batches.commit_age(), batches.in_flight()]),
        ("Where does the time go?", [batches.duration(), batches.phases(), batches.commits()]),
        ("Does it keep up?", keeping_up),
        ("How far behind the broker?", [data.lag_of_topics(), data.age_of_what_waits()]),
        ("Is data in danger?", [retention.used(), retention.left()]),
        ("How far behind its tables?", [backlog.files(), backlog.volume()]),
        ("Event time and state", event_time),
        ("What went wrong?", [failures.errors(), failures.terminations(), failures.restarts()]),
    ]
    series = f"spark_streaming_query_state{{{OF_DRIVER}"
    return dashboard(
        links.QUERY,
        "querypulse / Query",
        "One streaming query: does it commit, what takes its time, does it keep up, what failed.",
        sections,
        variables=[
            *drivers(),
            choice("app", "Application", f"{series}}}", everything=False),
            choice("query", "Query", f'{series}, app=~"$app"}}', everything=False),
        ],
        links=[
            links.to_dashboard("Fleet", links.FLEET, "Every query at a glance"),
            links.to_runbooks(),
        ],
        noted=True,
    )
