"""Draws large numbers side by side."""

from __future__ import annotations

from tools.grafana.picture.answers import Answers, legend
from tools.grafana.picture.svg import FAINT, INK, LETTER, Box, fit, on, rect, text
from tools.grafana.picture.values import Json, colour, fields_of, shown


def draw_stat(panel: Json, answers: Answers, box: Box) -> list[str]:
    """The panel's inside."""
    fields = fields_of(panel)
    found = [(target, one) for target in panel["targets"] for one in answers.now(target)]
    if not found:
        middle = box.x + box.w / 2
        return [text(middle, box.y + box.h / 2 + 5, fields["noValue"], fill=FAINT, anchor="middle")]
    parts, width = [], box.w / len(found)
    for place, (target, one) in enumerate(found):
        cell = Box(box.x + place * width, box.y, width, box.h)
        value = one.points[-1][1]
        name = legend(target, one.labels) if len(found) > 1 else ""
        parts += _number(shown(value, fields), name, colour(value, fields), panel, cell)
    return parts


def _number(number: str, name: str, paint: str, panel: Json, cell: Box) -> list[str]:
    filled = panel["options"]["colorMode"] == "background_solid"
    ground = [rect(cell.inset(2, 0, 2, 2), paint, radius=4)] if filled else []
    ink = on(paint) if filled else INK
    size = min(38.0, (cell.w - 16) / (len(number) * LETTER))
    middle = cell.x + cell.w / 2
    lifted = 8 if name else 0
    parts = [
        text(
            middle,
            cell.y + cell.h / 2 + size * 0.36 - lifted,
            number,
            size=round(size, 1),
            fill=ink,
            anchor="middle",
            bold=True,
        )
    ]
    if name:
        short = fit(name, cell.w, 12)
        parts.append(text(middle, cell.y + cell.h - 10, short, fill=ink, anchor="middle"))
    return ground + parts
