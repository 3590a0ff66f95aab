"""One function for each kind of panel; each returns the panel as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tools.grafana.fields import STATE_WORDS, Json, every_column, fixed, thresholds
from tools.grafana.palette import GREY

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def drawn(expression: str, legend: str) -> Json:
    """A target over the time shown; ``legend`` may use ``{{labels}}``."""
    return {"expr": expression, "legendFormat": legend, "range": True, "instant": False}


def now(expression: str, legend: str = "") -> Json:
    """A target at the end of the time shown, so that an old value is never taken for a new one."""
    return {
        "expr": expression,
        "legendFormat": legend or "__auto",
        "range": False,
        "instant": True,
    }


def stat(
    title: str,
    description: str,
    targets: Sequence[Json],
    size: tuple[int, int],
    *,
    unit: str = "none",
    steps: Json | None = None,
    empty: str = "nothing is known",
    **defaults: Any,
) -> Json:
    """Large numbers, coloured by ``steps``; ``empty`` is shown where there is no value."""
    poll = {"thresholds": steps or thresholds(GREY), "color": {"mode": "thresholds"}}
    options = {
        "reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""},
        "colorMode": "background_solid" if steps or "mappings" in defaults else "none",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "auto",
    }
    fields = {"unit": unit, "noValue": empty, **poll, **defaults}
    return _panel("stat", title, description, targets, size) | _poll(options, fields)


def graph(
    title: str,
    description: str,
    targets: Sequence[Json],
    size: tuple[int, int],
    *,
    unit: str,
    color: str | None = None,
    overrides: Sequence[Json] = (),
    stacked: bool = False,
    bars: bool = False,
    at_least: float | None = None,
    empty: str = "nothing in the time shown",
    **defaults: Any,
) -> Json:
    """Lines over time: all in one ``color``, or each in one of Grafana's.

    The axis reaches from 0 to ``at_least``, so that nothing but zeros is a line at its foot.
    """
    custom = {
        "drawStyle": "bars" if bars else "line",
        "lineWidth": 1 if bars or stacked else 2,
        "fillOpacity": 60 if bars or stacked else 8,
        "showPoints": "never",
        "spanNulls": False,
        "axisSoftMin": 0,
        **({"axisSoftMax": at_least} if at_least else {}),
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
    }
    paint = fixed(color) if color else {"mode": "palette-classic"}
    options = {
        "legend": {
            "displayMode": "list",
            "placement": "bottom",
            "showLegend": True,
            "calcs": [],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    fields = {"unit": unit, "noValue": empty, "color": paint, "custom": custom, **defaults}
    return _panel("timeseries", title, description, targets, size) | _poll(
        options, fields, overrides
    )


def timeline(
    title: str, description: str, targets: Sequence[Json], size: tuple[int, int], **defaults: Any
) -> Json:
    """The state of each query over time, as words in the palette's colours."""
    options = {
        "mergeValues": True,
        "showValue": "auto",
        "alignValue": "left",
        "rowHeight": 0.85,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    fields = {
        "unit": "none",
        "noValue": "no query was seen in the time shown",
        "mappings": STATE_WORDS,
        "thresholds": thresholds(GREY),
        "color": {"mode": "thresholds"},
        "custom": {"fillOpacity": 85, "lineWidth": 0, "spanNulls": False},
        **defaults,
    }
    return _panel("state-timeline", title, description, targets, size) | _poll(options, fields)


def table(
    title: str,
    description: str,
    columns: Mapping[str, Json | None],
    size: tuple[int, int],
    *,
    overrides: Sequence[Json],
    sort: tuple[str, bool],
    empty: str,
    unseen: Sequence[str] = (),
) -> Json:
    """Rows put together from several targets by the labels they share.

    ``columns`` in their order: the title and the target of each; None for a label, which is a
    column under its own name. ``unseen`` names those that are there for their labels only.
    ``sort``: the column, and whether its highest come first.
    """
    targets = [{**target, "format": "table"} for target in columns.values() if target]
    options = {
        "showHeader": True,
        "cellHeight": "sm",
        "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
        "sortBy": [{"displayName": sort[0], "desc": sort[1]}],
    }
    fields = {
        "unit": "none",
        "noValue": empty,
        "thresholds": thresholds(GREY),
        "color": {"mode": "thresholds"},
        "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": False},
    }
    panel = _panel("table", title, description, targets, size) | _poll(
        options, fields, [every_column(noValue="-"), *overrides]
    )
    return {**panel, "transformations": _one_table(columns, unseen)}


def _one_table(columns: Mapping[str, Json | None], unseen: Sequence[str]) -> list[Json]:
    """Grafana calls the only value of a table ``Value``, several ``Value #A``, ``Value #B`` ..."""
    titles = [title for title, target in columns.items() if target]
    letters = {title: f"Value #{_letter(place)}" for place, title in enumerate(titles)}
    found = letters if len(titles) > 1 else dict.fromkeys(titles, "Value")
    organize = {
        "excludeByName": {"Time": True, **{found[title]: True for title in unseen}},
        "indexByName": {found.get(title, title): place for place, title in enumerate(columns)},
        "renameByName": {name: title for title, name in found.items()},
    }
    return [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}]


def _letter(place: int) -> str:
    return chr(ord("A") + place)


def _panel(
    kind: str, title: str, description: str, targets: Sequence[Json], size: tuple[int, int]
) -> Json:
    named = [
        {"refId": _letter(place), "datasource": DATASOURCE, "editorMode": "code", **target}
        for place, target in enumerate(targets)
    ]
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "gridPos": {"w": size[0], "h": size[1]},
        "targets": named,
    }


def _poll(options: Json, defaults: Json, overrides: Sequence[Json] = ()) -> Json:
    fields = {"defaults": defaults, "overrides": list(overrides)}
    return {"options": options, "fieldConfig": fields}
