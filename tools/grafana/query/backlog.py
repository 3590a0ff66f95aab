"""The backlog of a source in files and bytes, for sources that report it (Databricks')."""

from __future__ import annotations

from tools.grafana.fields import Json
from tools.grafana.links import runbook
from tools.grafana.palette import BLUE
from tools.grafana.panels import drawn, graph
from tools.grafana.promql import each, source

HALF = (12, 7)
UNREPORTED = "its sources do not report their backlog"


def files() -> Json:
    """How many files are unread."""
    return _backlog("files", "short")


def volume() -> Json:
    """How many bytes are unread."""
    return _backlog("bytes", "bytes")


def _backlog(what: str, unit: str) -> Json:
    return graph(
        f"Backlog by source, {what}",
        f"Unread {what} in each source after the last batch, as the source itself reports (Delta "
        "and cloudFiles on Databricks do). Good: small, or falling. Rising steadily: "
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
