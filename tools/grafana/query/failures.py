"""What went wrong: the open failure, runs that ended, and restarts."""

from __future__ import annotations

from tools.grafana.fields import Json, column, fixed, lines_like
from tools.grafana.links import runbook, status_page_of_row
from tools.grafana.palette import GREY, ORANGE, SKY, VERMILLION
from tools.grafana.panels import drawn, graph, now, table
from tools.grafana.promql import each, meanwhile_each_step, query

SIZE = (8, 7)


def errors() -> Json:
    """The failure that the query has not recovered from."""
    by = "app, query, error_class, instance"
    return table(
        "Open failure",
        "The class of the exception that ended the last run, until the query recovers. Its "
        f"message is in the alert and on the status page. {runbook('StreamingQueryFailed')}.",
        {
            "query": None,
            "error_class": None,
            "instance": None,
            "open": now(each(query("failure_info"), by=by)),
            "app": None,
        },
        SIZE,
        overrides=[column("instance", links=[status_page_of_row()])],
        sort=("query", False),
        empty="no open failure",
        unseen=["open"],
    )


def terminations() -> Json:
    """Runs that ended."""
    ended = meanwhile_each_step(query("terminations_total"), by="app, query, outcome")
    return graph(
        "Runs that ended",
        "By outcome: *failed* with an exception, *stopped* by the application, *completed* by "
        f"themselves. Good: only planned ones. {runbook('StreamingQueryFailed')}, "
        f"{runbook('StreamingQueryStopped')}.",
        [drawn(ended, "{{query}}: {{outcome}}")],
        SIZE,
        unit="none",
        at_least=1,
        bars=True,
        overrides=[
            lines_like(": failed$", color=fixed(VERMILLION)),
            lines_like(": stopped$", color=fixed(GREY)),
            lines_like(": completed$", color=fixed(SKY)),
        ],
    )


def restarts() -> Json:
    """Runs that followed an earlier run."""
    return graph(
        "Restarts",
        "Runs that followed an earlier run. Good: only planned ones. Several in a row: "
        f"{runbook('StreamingQueryFlapping')}.",
        [drawn(meanwhile_each_step(query("restarts_total")), "{{query}}")],
        SIZE,
        unit="none",
        at_least=1,
        color=ORANGE,
        bars=True,
    )
