"""Draws the states of queries over time, one row for each."""

from __future__ import annotations

from itertools import groupby

from tools.grafana.picture.answers import Answers, legend
from tools.grafana.picture.scale import times
from tools.grafana.picture.svg import FAINT, LETTER, Box, fit, on, rect, text
from tools.grafana.picture.values import Json, colour, fields_of, shown

NAMES = 150
"""The width of the rows' names."""


def draw_timeline(panel: Json, answers: Answers, box: Box) -> list[str]:
    """The panel's inside."""
    target, fields = panel["targets"][0], fields_of(panel)
    rows = sorted((legend(target, one.labels), one.points) for one in answers.drawn(target))
    plot = box.inset(NAMES, 0, 10, 20)
    tall = plot.h / max(len(rows), 1)
    parts = []
    for place, (name, points) in enumerate(rows):
        row = Box(plot.x, plot.y + place * tall + tall * 0.08, plot.w, tall * 0.84)
        short = fit(name, NAMES - 8, 12)
        parts.append(text(plot.x - 8, row.y + row.h / 2 + 4, short, anchor="end"))
        parts += _states(points, fields, answers, row)
    scale = plot.w / (answers.end - answers.start)
    for at, written in times(answers.start, answers.end, plot.w):
        x = plot.x + (at - answers.start) * scale
        parts.append(text(x, box.y + box.h - 5, written, size=10, fill=FAINT, anchor="middle"))
    return parts


def _states(
    points: list[tuple[float, float]], fields: Json, answers: Answers, row: Box
) -> list[str]:
    """Equal states side by side become one bar, with the state's word where it fits."""
    scale, parts = row.w / (answers.end - answers.start), []
    # Where points are missing, a new bar begins.
    gaps = [(at - place * answers.step, value) for place, (at, value) in enumerate(points)]
    places = range(len(points))
    for (_, value), group in groupby(places, key=lambda n: (round(gaps[n][0]), gaps[n][1])):
        members = list(group)
        x = row.x + (points[members[0]][0] - answers.start) * scale
        width = len(members) * answers.step * scale
        bar = Box(x, row.y, min(width, row.x + row.w - x), row.h)
        paint, word = colour(value, fields), shown(value, fields)
        parts.append(rect(bar, paint))
        if len(word) * 11 * LETTER + 8 < bar.w:
            parts.append(text(x + 5, row.y + row.h / 2 + 4, word, size=11, fill=on(paint)))
    return parts
