"""How Grafana shows values: units, words for numbers, colours by thresholds, overrides."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from tools.grafana.picture.svg import INK

Json = dict[str, Any]
SPANS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"))


def shown(value: float, fields: Json) -> str:
    """A value in its unit; or its word, where it has one."""
    word = mapped(value, fields)
    if word:
        return str(word["text"])
    if fields["unit"] == "none" and "decimals" in fields:
        return f"{value:.{fields['decimals']}f}"
    return UNITS.get(fields["unit"], _plain)(value)


def mapped(value: float | str, fields: Json) -> Json | None:
    """The word and the colour of this value."""
    key = value if isinstance(value, str) else f"{value:g}"
    for mapping in fields.get("mappings", []):
        found: Json | None = mapping["options"].get(key)
        if found:
            return found
    return None


def colour(value: float | str, fields: Json) -> str:
    """A value's colour: of its word, else by the thresholds."""
    word = mapped(value, fields)
    if word or isinstance(value, str):
        return str(word["color"]) if word else INK
    steps = fields["thresholds"]["steps"]
    return str([s["color"] for s in steps if s["value"] is None or value >= s["value"]][-1])


def fields_of(panel: Json, *, name: str = "", ref: str = "") -> Json:
    """The options of one column or line: the panel's defaults, and what overrides them."""
    config = panel["fieldConfig"]
    defaults: Json = config["defaults"]
    fields = {**defaults, **defaults.get("custom", {})}
    for override in config["overrides"]:
        if _matches(override["matcher"], name, ref):
            for one in override["properties"]:
                fields[one["id"].removeprefix("custom.")] = one["value"]
    return fields


def _matches(matcher: Json, name: str, ref: str) -> bool:
    kind, wanted = matcher["id"], matcher["options"]
    if kind == "byRegexp":
        return re.search(wanted.strip("/"), name) is not None
    return bool(wanted == {"byName": name, "byFrameRefID": ref}[kind])


def _span(seconds: float) -> str:
    size, unit = next((one for one in SPANS if abs(seconds) >= one[0]), (1, "s"))
    return f"{_three(seconds / size)} {unit}"


def _scaled(value: float, base: int, suffixes: tuple[str, ...]) -> str:
    for suffix in suffixes[:-1]:
        if abs(value) < base:
            return _three(value) + suffix
        value /= base
    return _three(value) + suffixes[-1]


def _plain(value: float) -> str:
    return _scaled(value, 1000, ("", " K", " Mil", " Bil"))


def _moment(milliseconds: float) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).strftime("%H:%M:%S UTC")


def _three(value: float) -> str:
    """At most three digits that matter, and no more than two behind the point."""
    digits = max(0, 2 - len(str(int(abs(value)))) + 1) if value else 0
    written = f"{value:.{min(digits, 2)}f}"
    return written.rstrip("0").rstrip(".") if "." in written else written


UNITS: dict[str, Callable[[float], str]] = {
    "s": _span,
    "dtdurations": _span,
    "percentunit": lambda share: f"{100 * share:.0f} %",
    "bool_yes_no": lambda value: "yes" if value else "no",
    "bytes": lambda value: _scaled(value, 1024, ("", " KiB", " MiB", " GiB")),
    "dateTimeFromNow": _moment,
    "cpm": lambda value: f"{_plain(value)} / min",
    "eps": lambda value: f"{_plain(value)} / s",
    "rowsps": lambda value: f"{_plain(value)} rows/s",
}
"""How a value is written, by Grafana's name of its unit."""
