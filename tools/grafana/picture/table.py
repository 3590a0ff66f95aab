"""Draws tables: several targets' series put together by the labels they share, as Grafana does."""

from __future__ import annotations

from tools.grafana.palette import BLUE
from tools.grafana.picture.answers import Answers
from tools.grafana.picture.svg import FAINT, INK, LETTER, RULE, Box, fit, line, on, rect, text
from tools.grafana.picture.values import Json, colour, fields_of, mapped, shown

Row = dict[str, str | float]
LINE = 28


def draw_table(panel: Json, answers: Answers, box: Box) -> list[str]:
    """The panel's inside."""
    rows, columns = _rows(panel, answers)
    if not rows:
        empty = panel["fieldConfig"]["defaults"]["noValue"]
        return [text(box.x + box.w / 2, box.y + box.h / 2, empty, fill=FAINT, anchor="middle")]
    order = panel["options"]["sortBy"][0]
    known = [row for row in rows if order["displayName"] in row]
    known.sort(key=lambda row: row[order["displayName"]], reverse=order["desc"])
    rows = [*known, *(row for row in rows if order["displayName"] not in row)]
    rows = rows[: int(box.h // LINE) - 1]
    widths = _widths(panel, rows, columns, box.w)
    parts, x = [], box.x
    for column, width in zip(columns, widths, strict=True):
        parts.append(text(x + 6, box.y + 18, fit(column, width - 6, 11), size=11, bold=True))
        for place, row in enumerate(rows):
            cell = Box(x, box.y + LINE * (place + 1), width, LINE)
            parts += _cell(panel, column, row.get(column), cell)
        x += width
    for place in range(len(rows) + 1):
        y = box.y + LINE * (place + 1)
        parts.append(line([(box.x, y), (box.x + box.w, y)], RULE))
    return parts


def _rows(panel: Json, answers: Answers) -> tuple[list[Row], list[str]]:
    """The rows, and those columns in their order of which some row has something."""
    organize = panel["transformations"][1]["options"]
    targets = panel["targets"]
    answered = [(f"Value #{one['refId']}", answers.now(one)) for one in targets]
    answered = [(name, found) for name, found in answered if found]
    common = [set(series.labels) for _, found in answered for series in found[:1]]
    shared = sorted(set.intersection(*common)) if common else []
    merged: dict[tuple[str, ...], Row] = {}
    for name, found in answered:
        for series in found:
            row = merged.setdefault(tuple(series.labels[label] for label in shared), {})
            title = name if len(targets) > 1 else "Value"
            row.update(series.labels)
            if title not in organize["excludeByName"]:
                row[organize["renameByName"].get(title, title)] = series.points[-1][1]
    rows = list(merged.values())
    order = [organize["renameByName"].get(name, name) for name in organize["indexByName"]]
    return rows, [name for name in order if any(name in row for row in rows)]


def _written(panel: Json, column: str, value: str | float) -> str:
    if isinstance(value, str):
        return value
    return shown(value, fields_of(panel, name=column))


def _widths(panel: Json, rows: list[Row], columns: list[str], room: float) -> list[float]:
    """As wide as the longest of each column wants, all together as wide as the panel."""
    longest = [
        max(len(column), *(len(_written(panel, column, row.get(column, ""))) for row in rows)) + 3
        for column in columns
    ]
    return [room * one / sum(longest) for one in longest]


def _cell(panel: Json, column: str, value: str | float | None, cell: Box) -> list[str]:
    if value is None:
        return []
    fields = fields_of(panel, name=column)
    kind = fields["cellOptions"]["type"]
    words = fit(_written(panel, column, value), cell.w - 8, 12)
    plain = kind == "auto" or (isinstance(value, str) and not mapped(value, fields))
    paint = INK if plain else colour(value, fields)
    ink = BLUE if fields.get("links") else paint
    parts: list[str] = []
    if kind == "color-background" and not plain:
        parts.append(rect(cell.inset(1, 2, 3, 2), paint, radius=2))
        ink = on(paint)
    elif kind == "gauge" and not isinstance(value, str):
        parts.append(rect(cell.inset(cell.w * 0.45, 7, 8, 7), RULE, radius=2))
        filled = cell.inset(cell.w * 0.45, 7, 8, 7)
        parts.append(rect(filled._replace(w=filled.w * min(max(value, 0), 1)), paint, radius=2))
        ink = INK
    known = min(len(words) * 12 * LETTER, cell.w)
    return [*parts, text(cell.x + 6, cell.y + 18, words, fill=ink)] if known else parts
