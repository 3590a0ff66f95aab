"""Who reads what another query writes, and how old the data is at the end."""

from __future__ import annotations

from tools.grafana import links
from tools.grafana.fields import STATE_WORDS, Json, column
from tools.grafana.panels import drawn, graph, now, table
from tools.grafana.promql import each, query, state_number

AGE = query("end_to_end_age_seconds")
ROW = "app, query"
ROW_LINKS = [links.query_of_row("__data.fields.app", "__data.fields.query")]
LINE_LINKS = [links.query_of_row("__field.labels.app", "__field.labels.query")]


def edges() -> Json:
    """One row for each query that reads what another one writes."""
    edge = each(query("upstream"), by="app, query, upstream")
    state = f"{edge} * on (app, query) group_left () {state_number(by=ROW)}"
    old = f"{edge} * on (app, query) group_left () {each(AGE)}"
    return table(
        "Who reads what another query writes",
        "Each query, and the queries whose output it reads. If one of those fails, the query is "
        "*idle*: it has no new data. *end-to-end age*: how old the newest data is that has passed "
        "from the first sources into its table.",
        {
            "app": None,
            "upstream": None,
            "query": None,
            "state": now(state),
            "end-to-end age": now(old),
        },
        (12, 9),
        overrides=[
            column("query", links=ROW_LINKS),
            column(
                "state",
                mappings=STATE_WORDS,
                custom__cellOptions={"type": "color-background", "mode": "basic"},
                custom__align="left",
                custom__width=95,
            ),
            column("end-to-end age", unit="s", decimals=1, custom__width=130),
        ],
        sort=("state", True),
        empty="no query reads what another one writes",
    )


def end_to_end_age() -> Json:
    """The age of the newest data at the end of each chain."""
    return graph(
        "End-to-end age",
        "How old the newest data is that has passed from the first sources, through all queries "
        "before it, into the query's table. Good: a flat saw. Climbing: no new data arrives, or a "
        "query before it has stopped. No line: unknown.",
        [drawn(each(AGE), "{{app}} / {{query}}")],
        (12, 9),
        unit="s",
        empty="no query has committed data",
        links=LINE_LINKS,
    )
