"""What waits in a source in files and bytes, where it tells, as Databricks' sources do."""

from __future__ import annotations

from tools.grafana.fields import Json
from tools.grafana.links import runbook
from tools.grafana.palette import BLUE
from tools.grafana.panels import drawn, graph
from tools.grafana.promql import each, source

HALF = (12, 7)
UNREPORTED = "its sources do not tell their backlog"


def files() -> Json:
    """How many files wait."""
    return _backlog("files", "short")


def volume() -> Json:
    """How much they hold."""
    return _backlog("bytes", "bytes")


def _backlog(what: str, unit: str) -> Json:
    return graph(
        f"Backlog by source, {what}",
        f"How many {what} waited in each source after the last batch, as the source itself tells "
        "(Delta and cloudFiles on Databricks do). Good: small, or falling. Rising without an end: "
        f"{runbook('StreamingBatchSlow')}, {runbook('StreamingQueryLagging')}.",
        [
            drawn(
                each(source(f"backlog_{what}"), by="app, query, source"),
                "{{query}}: source {{source}}",
            )
        ],
        HALF,
        unit=unit,
        at_least=1,
        color=BLUE,
        empty=UNREPORTED,
    )
