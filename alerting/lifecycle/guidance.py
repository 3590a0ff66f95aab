"""What an alert adds to its finding: links and the next steps."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from ...listener.labels import RESERVED
from ..details import NEXT_STEPS

ALL_QUERIES = "$__all"
"""The query in a dashboard URL if an alert is about several queries: Grafana's value for all."""


class Guidance(msgspec.Struct, frozen=True):
    """Links and steps for all alerts of one driver; empty ones are left out.

    ``runbook_url`` holds ``{alertname}``; ``dashboard_url`` may hold ``{app}`` and ``{query}``.
    ``next_steps`` are short lines by alert name.
    """

    runbook_url: str
    dashboard_url: str = ""
    spark_ui_url: str = ""
    next_steps: Mapping[str, str] = {}

    def links(self, alertname: str, app: str, query: str) -> dict[str, str]:
        """The annotations that are links."""
        names = {"app": app, "query": ALL_QUERIES if query in RESERVED else query}
        found = {
            "runbook_url": _filled(self.runbook_url, {"alertname": alertname}),
            "dashboard_url": _filled(self.dashboard_url, names),
            "spark_ui_url": self.spark_ui_url,
        }
        return {name: url for name, url in found.items() if url}

    def steps(self, alertname: str) -> dict[str, str]:
        """The annotation ``next_steps``; empty if the alert has none."""
        text = self.next_steps.get(alertname, "")
        return {NEXT_STEPS: text} if text else {}


def _filled(template: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        template = template.replace(f"{{{name}}}", quote(value, safe="$", errors="replace"))
    return template
