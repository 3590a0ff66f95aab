"""How values are shown: thresholds, words for numbers, overrides for columns or lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.grafana.palette import GREEN, GREY, SEVERITIES, STATES
from tools.grafana.promql import NUMBERS

Json = dict[str, Any]


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


STATE_WORDS = words({str(NUMBERS[state]): (state, color) for state, color in STATES.items()})
SEVERITY_WORDS = words({severity: (severity, color) for severity, color in SEVERITIES.items()})


def column(name: str, **properties: Any) -> Json:
    """An override for one column of a table, or one named line."""
    return _override("byName", name, properties)


def target_lines(ref: str, **properties: Any) -> Json:
    """An override for all lines of one target."""
    return _override("byFrameRefID", ref, properties)


def lines_like(pattern: str, **properties: Any) -> Json:
    """An override for all lines whose name matches a pattern."""
    return _override("byRegexp", f"/{pattern}/", properties)


def every_column(**properties: Any) -> Json:
    """An override for all columns; the panel's default text still describes an empty panel."""
    return lines_like(".*", **properties)


def fixed(color: str) -> Json:
    """A line's colour."""
    return {"mode": "fixed", "fixedColor": color}


def limit(ref: str, color: str) -> Json:
    """Draw a target's lines as a limit that other lines should stay under."""
    style = {"fill": "dash", "dash": [8, 6]}
    return target_lines(
        ref,
        color=fixed(color),
        custom__lineStyle=style,
        custom__lineWidth=2,
        custom__fillOpacity=0,
        custom__stacking={"mode": "none", "group": "A"},
    )


def _override(matcher: str, what: str, properties: Mapping[str, Any]) -> Json:
    """``custom__lineWidth`` is the property ``custom.lineWidth``."""
    return {
        "matcher": {"id": matcher, "options": what},
        "properties": [
            {"id": name.replace("__", "."), "value": value} for name, value in properties.items()
        ],
    }
