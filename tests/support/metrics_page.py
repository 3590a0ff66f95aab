"""The page ``docs/metrics.md``, from what a driver serves; ``make dashboards`` writes it."""

from __future__ import annotations

import sys

from prometheus_client.core import Metric
from support.repository import families

from querypulse.core.states import STATES

HEAD = """\
# Metrics

`make dashboards` writes this page from what a driver serves at `/metrics` (OpenMetrics on request). Timestamps are Unix
seconds and absent until they exist. Gauges that Spark does not know are absent too, never 0 or -1. The label `query` is the
query's name, or the first 8 characters of its id. The series of a dead query stay until it is back or forgotten. At most
1,000 queries have series: expected ones first, then those that run, then those that should run. Only the `..._info` metrics,
which are made for joins, have a run id or an error class as a label; no label has a batch id.
"""
FOOT = """\
## Of many drivers

A driver has 80 series for each query, and more for sources and state. Load
[federation.yaml](../dashboards/prometheus/federation.yaml) where drivers are scraped, and pass on only what it records: at most ten series of
each app, however many queries it has, by all labels of the scrape but `instance` and `pod`. A global Prometheus takes them by
[federation](../dashboards/prometheus/profiles/global.yaml), another store by [remote write](../dashboards/prometheus/profiles/remote-write.yaml).

| series | meaning |
|---|---|
"""
RECORDED = {
    "querypulse:queries_active:sum": "Queries that run.",
    "querypulse:queries_unhealthy:sum": "Queries in a state in which something is wrong.",
    "querypulse:query_state_rank:max": f"The worst state of a query: {len(STATES)} is {STATES[0]}.",
    "querypulse:query_alert:sum": "Open alerts of the driver, by severity.",
    "querypulse:source_lag_seconds:max": "The age of the oldest unread record.",
    "querypulse:query_freshness_budget_left_seconds:min": "The smallest budget that is left.",
    "querypulse:query_input_rows:rate5m": "Rows read in a second.",
    "querypulse:query_executor_cpu_seconds:rate5m": "CPUs that tasks use.",
    "querypulse:driver_heartbeat_timestamp_seconds:max": "When the driver last evaluated.",
}
SECTIONS = {
    "## Of each query": "spark_streaming_query_",
    "## Of each source of a query": "spark_streaming_source_",
    "## Of each topic of a source": "spark_streaming_topic_",
    "## Of each partition of a topic": "spark_streaming_partition_",
    "## Of the driver": "spark_streaming_driver_",
    "## Of querypulse itself": "querypulse_",
}


def page() -> str:
    parts = [HEAD]
    for title, prefix in SECTIONS.items():
        rows = [row(name) for name in families() if name.startswith(prefix)]
        parts.append(
            "\n".join(
                [title, "", "| metric | type | labels | meaning |", "|---|---|---|---|", *rows, ""]
            )
        )
    recorded = "".join(f"| `{name}` | {text} |\n" for name, text in RECORDED.items())
    return "\n".join([*parts, FOOT + recorded])


def row(name: str) -> str:
    family = families()[name]
    labels = ", ".join(f"`{label}`" for label in labels_of(family)) or "none"
    return f"| `{name}` | {family.type} | {labels} | {family.documentation} |"


def labels_of(family: Metric) -> list[str]:
    """Labels in the order of the samples, without ``le``, which every histogram has."""
    assert family.samples, f"{family.name}: the full published of the tests has no sample of it"
    return list(
        dict.fromkeys(
            label for sample in family.samples for label in sample.labels if label != "le"
        )
    )


if __name__ == "__main__":
    sys.stdout.write(page())
