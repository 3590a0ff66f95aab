"""The page ``docs/metrics.md``, from what a driver serves; ``make dashboards`` writes it."""

from __future__ import annotations

import sys

from prometheus_client.core import Metric
from support.repository import families

HEAD = """\
# Metrics

`make dashboards` writes this page from what a driver serves at `/metrics` (OpenMetrics on request). Timestamps are Unix
seconds and absent until they exist. Gauges that Spark does not know are absent too, never 0 or -1. The label `query` is the
query's name, or the first 8 characters of its id. The series of a dead query stay until it is back or forgotten. At most
1,000 queries have series: expected ones first, then those that run, then those that should run. Only the `..._info` metrics,
which are made for joins, have a run id or an error class as a label; no label has a batch id.
"""
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
    return "\n".join(parts)


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
