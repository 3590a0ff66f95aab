"""The shipped Grafana dashboards as data, and their queries as Prometheus receives them."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "dashboards" / "grafana"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}

TIMES = {"__rate_interval": "1m", "__range": "10m", "__interval": "15s"}
EVERYTHING = dict.fromkeys(("job", "instance", "app", "query"), ".+")


def values_of(value, key):
    """Every value under ``key`` in a piece of JSON."""
    if isinstance(value, list):
        return [inner for part in value for inner in values_of(part, key)]
    if not isinstance(value, dict):
        return []
    here = [value[key]] if key in value else []
    return here + [inner for part in value.values() for inner in values_of(part, key)]


def in_order(dashboard):
    """All headings and panels; those of a closed row follow its heading."""
    return [shown for panel in dashboard["panels"] for shown in (panel, *panel.get("panels", ()))]


def panels(dashboard):
    """All panels except the headings."""
    return [panel for panel in in_order(dashboard) if panel["type"] != "row"]


def variables(dashboard):
    """The variables whose values are queried."""
    return [variable for variable in dashboard["templating"]["list"] if variable["type"] == "query"]


def every_panel():
    """All panels of all dashboards, by dashboard and title."""
    return {
        f"{name}: {panel['title']}": panel
        for name, dashboard in DASHBOARDS.items()
        for panel in panels(dashboard)
    }


def every_target():
    """All targets of all panels, by dashboard, title and ``refId``."""
    return {
        f"{name} {target['refId']}": target
        for name, panel in every_panel().items()
        for target in panel["targets"]
    }


def every_expression():
    """All PromQL: of targets and of annotations."""
    expressions = {name: target["expr"] for name, target in every_target().items()}
    for name, dashboard in DASHBOARDS.items():
        for annotation in dashboard["annotations"]["list"]:
            expressions[f"{name}: annotation {annotation['name']}"] = annotation["expr"]
    return expressions


def filled(text, **values):
    """A query with Grafana's variables filled in; an unknown variable is an error."""
    filling = {**TIMES, **EVERYTHING, **values}
    return re.sub(r"\$(\w+)", lambda match: filling[match[1]], text)
