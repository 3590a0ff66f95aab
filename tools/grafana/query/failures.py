"""What went wrong: errors that stand, runs that ended, and restarts."""

from __future__ import annotations

from tools.grafana.fields import Json, column, fixed, lines_like
from tools.grafana.links import runbook, status_page_of_row
from tools.grafana.palette import GREY, ORANGE, SKY, VERMILLION
from tools.grafana.panels import drawn, graph, now, table
from tools.grafana.promql import each, meanwhile_each_step, query

SIZE = (8, 7)


def errors() -> Json:
    """The failure that still stands."""
    by = "app, query, error_class, instance"
    return table(
        "The failure that stands",
        "The class of the exception that ended the last run; gone as soon as the query is back. "
        f"Its message is in the alert and on the driver's page. {runbook('StreamingQueryFailed')}.",
        {
            "query": None,
            "error_class": None,
            "instance": None,
            "stands": now(each(query("failure_info"), by=by)),
            "app": None,
        },
        SIZE,
        overrides=[column("instance", links=[status_page_of_row()])],
        sort=("query", False),
        empty="no failure stands",
        unseen=["stands"],
    )


def terminations() -> Json:
    """Runs that ended."""
    ended = meanwhile_each_step(query("terminations_total"), by="app, query, outcome")
    return graph(
        "Runs that ended",
        "By how: *failed* with an exception, *stopped* by somebody, *completed* by themselves. "
        f"Good: only what you meant. {runbook('StreamingQueryFailed')}, "
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
    """Runs that followed."""
    return graph(
        "Restarts",
        "Runs that followed an earlier run. Good: none that you did not make. A row of them: "
        f"{runbook('StreamingQueryFlapping')}.",
        [drawn(meanwhile_each_step(query("restarts_total")), "{{query}}")],
        SIZE,
        unit="none",
        at_least=1,
        color=ORANGE,
        bars=True,
    )
