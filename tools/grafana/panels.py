"""The kinds of panels, how values are shown in them, and the dashboard around them.

In a description, ``<AlertName>`` becomes a link to the alert's runbook.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from querypulse.core.states import STATES
from querypulse.settings.settings import DEFAULT_RUNBOOKS
from tools.grafana.promql import (
    NUMBERS,
    OF_DRIVER,
    OPEN_ALERTS,
    in_states,
    max_by,
    now_open,
    state_number,
    streaming,
)

Json = dict[str, Any]

# The same colours as on the status page: Okabe and Ito's palette, which colour-blind people can
# distinguish. The state's word is always shown beside its colour.
VERMILLION, PURPLE, ORANGE, SKY = "#D55E00", "#CC79A7", "#E69F00", "#56B4E9"
GREEN, BLUE, GREY = "#009E73", "#0072B2", "#999999"
STATE_COLORS = dict(
    zip(
        STATES,
        [*[VERMILLION] * 3, *[PURPLE] * 2, *[ORANGE] * 4, SKY, SKY, GREEN, BLUE, GREY, GREY],
        strict=True,
    )
)

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
SCHEMA = 39
"""Grafana 11's: newer versions migrate older files, no version reads newer ones."""
CHOSEN = "${datasource:queryparam}&${job:queryparam}&${instance:queryparam}"
"""The variables that a link to the other dashboard keeps."""


# -- how values are shown ---------------------------------------------------------------------


def thresholds(base: str, steps: Mapping[float, str] | None = None) -> Json:
    """``base`` is the colour below the first step; a step is its lowest value and its colour."""
    first: Json = {"color": base, "value": None}
    rest = [{"color": color, "value": value} for value, color in (steps or {}).items()]
    return {"mode": "absolute", "steps": [first, *rest]}


def good_below(steps: Mapping[float, str]) -> Json:
    """Green from 0 to the first step; grey where there is no value, which is not good."""
    return thresholds(GREY, {0: GREEN, **steps})


def words(texts: Mapping[str, tuple[str, str]]) -> list[Json]:
    """Value mappings: for each value its word and its colour."""
    options = {
        value: {"text": text, "color": color, "index": index}
        for index, (value, (text, color)) in enumerate(texts.items())
    }
    return [{"type": "value", "options": options}]


STATE_WORDS = words({str(NUMBERS[state]): (state, STATE_COLORS[state]) for state in STATES})
SEVERITIES = {"critical": VERMILLION, "warning": ORANGE, "info": SKY}
SEVERITY_WORDS = words({severity: (severity, color) for severity, color in SEVERITIES.items()})
TEXT = {"type": "color-text"}
GROUND = {"type": "color-background", "mode": "basic"}


def column(name: str, **properties: Any) -> Json:
    """An override for one column of a table, or one named line."""
    return _override("byName", name, properties)


def lines_like(pattern: str, **properties: Any) -> Json:
    """An override for all lines whose name matches a pattern."""
    return _override("byRegexp", f"/{pattern}/", properties)


def fixed(color: str) -> Json:
    """A line's colour."""
    return {"mode": "fixed", "fixedColor": color}


def _override(matcher: str, options: str, properties: Mapping[str, Any]) -> Json:
    """``custom__lineWidth`` is the property ``custom.lineWidth``."""
    return {
        "matcher": {"id": matcher, "options": options},
        "properties": [
            {"id": name.replace("__", "."), "value": value} for name, value in properties.items()
        ],
    }


# -- links ------------------------------------------------------------------------------------


def query_of_row(fields: str) -> Json:
    """From a table's row, or a series, to *Query*; ``fields`` is where its labels are."""
    where = "&".join(f"var-{name}=${{{fields}.{name}:percentencode}}" for name in ("app", "query"))
    url = f"/d/querypulse-query?${{__url_time_range}}&{CHOSEN}&{where}"
    return {"title": "Look at this query", "url": url}


ROW_LINKS = [query_of_row("__data.fields")]
LINE_LINKS = [query_of_row("__field.labels")]
STATUS_PAGE = column(
    "instance",
    links=[
        {
            "title": "The driver's own status page",
            "url": "http://${__value.raw}/",
            "targetBlank": True,
        }
    ],
)
"""From an ``instance`` in a table to the status page of this driver."""
RUNBOOK = column(
    "alertname",
    links=[
        {
            "title": "Runbook",
            "url": f"{DEFAULT_RUNBOOKS}/${{__value.raw}}.md",
            "targetBlank": True,
        }
    ],
)
"""From an alert's name in a table to its runbook."""


def _top_links(title: str, uid: str, tooltip: str) -> list[Json]:
    """At the top: the other dashboard, with the time and drivers chosen here, and all runbooks."""
    link = {
        "type": "link",
        "title": title,
        "url": f"/d/{uid}?{CHOSEN}&${{app:queryparam}}",
        "tooltip": tooltip,
        "icon": "dashboard",
        "tags": [],
        "asDropdown": False,
        "includeVars": False,
        "keepTime": True,
        "targetBlank": False,
    }
    runbooks = {
        "title": "Runbooks",
        "url": DEFAULT_RUNBOOKS,
        "tooltip": "What each alert means and what to do about it",
        "icon": "doc",
        "keepTime": False,
        "targetBlank": True,
    }
    return [link, {**link, **runbooks}]


# -- panels -----------------------------------------------------------------------------------

Line = tuple[Json, Json]
"""A target over the time shown, and how its lines look."""


def line(legend: str, expression: str, color: str | None = None, **style: Any) -> Line:
    """Lines of one target; ``legend`` may use ``{{labels}}``."""
    target = {"expr": expression, "legendFormat": legend, "range": True, "instant": False}
    return target, {**({"color": fixed(color)} if color else {}), **style}


def limit(legend: str, expression: str, color: str) -> Line:
    """A limit that other lines should stay under."""
    return line(
        legend,
        expression,
        color,
        custom__lineStyle={"fill": "dash", "dash": [8, 6]},
        custom__lineWidth=2,
        custom__fillOpacity=0,
        custom__stacking={"mode": "none", "group": "A"},
    )


def _now(expression: str, legend: str = "__auto") -> Json:
    """A target at the end of the time shown, so that an old value is never taken for a new one."""
    return {"expr": expression, "legendFormat": legend, "range": False, "instant": True}


def stat(
    title: str,
    description: str,
    numbers: Mapping[str, str],
    empty: str,
    steps: Json | None = None,
    **defaults: Any,
) -> Json:
    """Large numbers, coloured by ``steps``; ``empty`` is shown where there is no value."""
    options = {
        "reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""},
        "colorMode": "background_solid" if steps or "mappings" in defaults else "none",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "auto",
    }
    fields = {
        "unit": defaults.pop("unit", "none"),
        "noValue": empty,
        "thresholds": steps or thresholds(GREY),
        "color": {"mode": "thresholds"},
        **defaults,
    }
    targets = [_now(expression, legend) for legend, expression in numbers.items()]
    return _panel("stat", title, description, targets, options=options, defaults=fields)


def graph(
    title: str,
    description: str,
    unit: str,
    *lines: Line,
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
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    paint = fixed(color) if color else {"mode": "palette-classic"}
    fields = {"unit": unit, "noValue": empty, "color": paint, "custom": custom, **defaults}
    styles = [
        _override("byFrameRefID", _letter(place), style)
        for place, (_, style) in enumerate(lines)
        if style
    ]
    targets = [target for target, _ in lines]
    return _panel(
        "timeseries",
        title,
        description,
        targets,
        options=options,
        defaults=fields,
        overrides=[*overrides, *styles],
    )


def timeline(title: str, description: str, legend: str, **defaults: Any) -> Json:
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
    target, _ = line(legend, state_number())
    return _panel("state-timeline", title, description, [target], options=options, defaults=fields)


def table(
    title: str,
    description: str,
    columns: Mapping[str, str | None],
    *overrides: Json,
    sort: tuple[str, bool],
    empty: str,
    unseen: str = "",
) -> Json:
    """Rows put together from several targets by the labels they share.

    ``columns`` in their order: the title and the expression of each; None for a label, which is a
    column under its own name. ``unseen`` is there for its labels only. ``sort``: the column, and
    whether its highest come first.
    """
    titles = {title: expression for title, expression in columns.items() if expression}
    targets = [{**_now(expression), "format": "table"} for expression in titles.values()]
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
    # The panel's default text still describes an empty panel.
    overrides = (lines_like(".*", noValue="-"), *overrides)
    panel = _panel(
        "table", title, description, targets, options=options, defaults=fields, overrides=overrides
    )
    # Grafana calls the only value of a table ``Value``, several ``Value #A``, ``Value #B`` ...
    names = {title: f"Value #{_letter(place)}" for place, title in enumerate(titles)}
    if len(titles) == 1:
        names = dict.fromkeys(titles, "Value")
    organize = {
        "excludeByName": {"Time": True, **({names[unseen]: True} if unseen else {})},
        "indexByName": {names.get(title, title): place for place, title in enumerate(columns)},
        "renameByName": {name: title for title, name in names.items()},
    }
    transformations = [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}]
    return {**panel, "transformations": transformations}


def _letter(place: int) -> str:
    return chr(ord("A") + place)


def _panel(
    kind: str,
    title: str,
    description: str,
    targets: Sequence[Json],
    *,
    options: Json,
    defaults: Json,
    overrides: Sequence[Json] = (),
) -> Json:
    return {
        "type": kind,
        "title": title,
        "description": re.sub(r"<(\w+)>", rf"[\1]({DEFAULT_RUNBOOKS}/\1.md)", description),
        "datasource": DATASOURCE,
        "gridPos": {},
        "targets": [
            {"refId": _letter(place), "datasource": DATASOURCE, "editorMode": "code", **target}
            for place, target in enumerate(targets)
        ],
        "options": options,
        "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
    }


# -- dashboard --------------------------------------------------------------------------------

Row = tuple[str, int, Sequence[Json]]
"""A heading, empty for none; the height of the panels below it; and these, of equal width."""


def dashboard(
    uid: str,
    title: str,
    description: str,
    rows: Sequence[Row],
    *,
    one_query: bool,
    other: tuple[str, str, str],
) -> Json:
    """A whole dashboard in the classic form, to be provisioned or imported as it is.

    ``one_query``: whether it is about one. Else its annotations are off at the beginning: those of
    one query out of two hundred would shade the lines of all. ``other``: title, uid and tooltip of
    the other dashboard.
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
        "links": _top_links(*other),
        "templating": {"list": _variables(one_query=one_query)},
        "annotations": {"list": list(_annotations(enabled=one_query))},
        "panels": list(_placed(rows)),
    }


def _variables(*, one_query: bool) -> list[Json]:
    """What chooses where the data is, and which drivers and queries it is about."""
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
    state = f"spark_streaming_query_state{{{OF_DRIVER}"
    return [
        datasource,
        _choice("job", "Job", "querypulse_build_info"),
        _choice("instance", "Driver", 'querypulse_build_info{job=~"$job"}'),
        _choice("app", "Application", f"{state}}}", includes_all=not one_query),
        _choice("query", "Query", f'{state}, app=~"$app"}}', includes_all=not one_query),
    ]


def _choice(name: str, label: str, series: str, *, includes_all: bool = True) -> Json:
    """A variable with the values of the label ``name`` in ``series``.

    Always one of many, even where one is meant: Grafana escapes names for a regex only then.
    """
    values = f"label_values({series}, {name})"
    everything = {"allValue": ".+", "current": {"text": ["All"], "value": ["$__all"]}}
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
        "includeAll": includes_all,
        "options": [],
        "regex": "",
        **(everything if includes_all else {"current": {}}),
    }


def _annotations(*, enabled: bool) -> Iterator[Json]:
    """What happened: starts as moments, deaths and alerts for as long as they last."""
    start = f"{max_by(streaming('query_start_timestamp_seconds'))} * 1000"
    dead = f"{max_by(in_states('failed', 'missing', 'stopped_unexpectedly'))} == 1"
    alert = now_open(OPEN_ALERTS)
    for name, expression, color, title, text in (
        # Milliseconds, as Grafana takes such a value.
        ("Starts", start, BLUE, "{{query}} starts", "{{app}}"),
        ("Deaths", dead, VERMILLION, "{{query}} is dead", "{{app}}"),
        ("Alerts", alert, ORANGE, "{{alertname}} {{query}}", "{{app}}, {{severity}}"),
    ):
        yield {
            "name": name,
            "datasource": DATASOURCE,
            "hide": False,
            "iconColor": color,
            "expr": expression,
            "titleFormat": title,
            "textFormat": text,
            "tagKeys": "app,query",
            "step": "",
            "useValueForTime": name == "Starts",
            "enable": enabled,
        }


def _placed(rows: Sequence[Row]) -> Iterator[Json]:
    """Number the panels and place them row by row; a panel may have a width of its own."""
    number, top = 0, 0
    for heading, height, panels in rows:
        if heading:
            number += 1
            yield {
                "id": number,
                "type": "row",
                "title": heading,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
                "panels": [],
            }
            top += 1
        left = 0
        for panel in panels:
            number += 1
            width = panel["gridPos"].get("w", COLUMNS // len(panels))
            place = {"x": left, "y": top, "w": width, "h": height}
            yield {"id": number, **panel, "gridPos": place}
            left += width
        top += height


def wide(width: int, panel: Json) -> Json:
    """The panel with a width of its own, in 24ths."""
    return {**panel, "gridPos": {"w": width}}
