"""What both dashboards share: variables, annotations, the grid, the settings around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tools.grafana.fields import Json
from tools.grafana.palette import BLUE, ORANGE, VERMILLION
from tools.grafana.panels import DATASOURCE
from tools.grafana.promql import ALERT_LABELS, OPEN_ALERTS, each, matcher, query

COLUMNS = 24
SCHEMA = 39
"""Grafana 11's: newer versions migrate older files, no version reads newer ones."""

Section = tuple[str, Sequence[Json]]
"""A heading, empty for none, and its panels from left to right, line by line."""


def dashboard(
    uid: str,
    title: str,
    description: str,
    sections: Sequence[Section],
    *,
    variables: Sequence[Json],
    links: Sequence[Json],
    noted: bool,
) -> Json:
    """A whole dashboard in the classic form, to be provisioned or imported as it is.

    ``noted``: whether its annotations are switched on from the beginning.
    """
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["querypulse", "spark"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "timepicker": {},
        "links": list(links),
        "templating": {"list": list(variables)},
        "annotations": {"list": _annotations(noted)},
        "panels": list(_placed(sections)),
    }


def drivers() -> list[Json]:
    """The variables that choose where the data is and which drivers it is about."""
    datasource = {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
        "multi": False,
        "includeAll": False,
        "current": {},
        "options": [],
        "regex": "",
    }
    return [
        datasource,
        choice("job", "Job", "querypulse_build_info"),
        choice("instance", "Driver", 'querypulse_build_info{job=~"$job"}'),
    ]


def choice(name: str, label: str, series: str, *, everything: bool = True) -> Json:
    """A variable with the values of the label ``name`` in ``series``.

    Always one of many, even where one is meant: Grafana escapes names for a regex only then.
    """
    values = f"label_values({series}, {name})"
    every: Json = {"allValue": ".+", "current": {"text": ["All"], "value": ["$__all"]}}
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "query": {"query": values, "refId": f"variable-{name}"},
        "definition": values,
        "refresh": 2,
        "sort": 5,
        "hide": 0,
        "multi": True,
        "includeAll": everything,
        "options": [],
        "regex": "",
        **(every if everything else {"current": {}}),
    }


def _annotations(noted: bool) -> list[Json]:
    """What happened: starts as moments, deaths and alerts for as long as they last."""
    start = f"{each(query('start_timestamp_seconds'))} * 1000"
    down = matcher("state", "failed", "missing", "stopped_unexpectedly")
    dead = f"{each(query('state', down))} == 1"
    alert = each(OPEN_ALERTS, by=ALERT_LABELS)
    found = [
        {
            **_annotation("Starts", start, BLUE, "{{query}} starts", "{{app}}"),
            # Milliseconds, as Grafana takes such a value.
            "useValueForTime": True,
        },
        _annotation("Deaths", dead, VERMILLION, "{{query}} is dead", "{{app}}"),
        _annotation("Alerts", alert, ORANGE, "{{alertname}} {{query}}", "{{app}}, {{severity}}"),
    ]
    return [{**one, "enable": noted} for one in found]


def _annotation(name: str, expression: str, color: str, title: str, text: str) -> Json:
    return {
        "name": name,
        "datasource": DATASOURCE,
        "hide": False,
        "iconColor": color,
        "expr": expression,
        "titleFormat": title,
        "textFormat": text,
        "tagKeys": "app,query",
        "step": "",
        "useValueForTime": False,
    }


def _placed(sections: Sequence[Section]) -> Iterator[Json]:
    """Number the panels and place them row by row."""
    number, top = 0, 0
    for heading, panels in sections:
        left, tall = 0, 0
        if heading:
            number += 1
            yield _heading(number, heading, top)
            top += 1
        for panel in panels:
            size: dict[str, Any] = panel["gridPos"]
            if left + size["w"] > COLUMNS:
                left, top, tall = 0, top + tall, 0
            number += 1
            yield {"id": number, **panel, "gridPos": {"x": left, "y": top, **size}}
            left, tall = left + size["w"], max(tall, size["h"])
        top += tall


def _heading(number: int, title: str, top: int) -> Json:
    place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
    return {
        "id": number,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": place,
        "panels": [],
    }
