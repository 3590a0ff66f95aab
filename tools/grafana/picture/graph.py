"""Draws lines, bars and stacks over time."""

from __future__ import annotations

from itertools import cycle
from typing import NamedTuple

from tools.grafana.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION
from tools.grafana.picture.answers import Answers, Series, legend
from tools.grafana.picture.notes import Note, drawn_notes
from tools.grafana.picture.scale import heights, times
from tools.grafana.picture.svg import FAINT, INK, LETTER, RULE, Box, area, fit, line, rect, text
from tools.grafana.picture.values import Json, fields_of, shown

Point = tuple[float, float]


class Line(NamedTuple):
    """One line: its name, how it looks, and its points."""

    name: str
    fields: Json
    color: str
    points: list[Point]


def draw_graph(panel: Json, answers: Answers, box: Box, noted: list[Note]) -> list[str]:
    """The panel's inside."""
    lines = _lines(panel, answers)
    if not lines:
        empty = panel["fieldConfig"]["defaults"]["noValue"]
        return [text(box.x + box.w / 2, box.y + box.h / 2, empty, fill=FAINT, anchor="middle")]
    names, used = _legend(lines, box)
    plot = box.inset(58, 6, 10, 20 + used)
    tops = _stacked(lines)
    largest = max([lines[0].fields.get("axisSoftMax", 0), *(v for one in tops for _, v in one)])
    marks = heights(largest, lines[0].fields["unit"])
    frame = Frame(plot, answers.start, answers.end, marks[-1])
    parts = [*_axes(frame, marks, lines[0].fields), *drawn_notes(noted, answers, plot)]
    for one, top in zip(lines, tops, strict=True):
        if _is_bar(one):
            parts += _bars(frame, one, answers.step)
        else:
            parts += _curve(frame, one, top, answers.step)
    return [*parts, *names]


class Frame(NamedTuple):
    """Where values and moments lie in the plot."""

    plot: Box
    start: float
    end: float
    top: float

    def at(self, point: Point) -> Point:
        """A point's place in the picture."""
        x = self.plot.x + (point[0] - self.start) / (self.end - self.start) * self.plot.w
        return x, self.plot.y + self.plot.h * (1 - max(point[1], 0) / self.top)


def _lines(panel: Json, answers: Answers) -> list[Line]:
    spare = cycle((GREEN, SKY, PURPLE, ORANGE, BLUE, VERMILLION, GREY))
    lines = []
    for target in panel["targets"]:
        found: list[Series] = answers.drawn(target)
        for series in sorted(found, key=lambda one: legend(target, one.labels)):
            name = legend(target, series.labels)
            fields = fields_of(panel, name=name, ref=target["refId"])
            color = fields["color"].get("fixedColor") or next(spare)
            if series.points:
                lines.append(Line(name, fields, color, series.points))
    return lines


def _is_bar(one: Line) -> bool:
    return bool(one.fields["drawStyle"] == "bars")


def _is_stacked(one: Line) -> bool:
    return bool(one.fields["stacking"]["mode"] == "normal")


def _stacked(lines: list[Line]) -> list[list[Point]]:
    """The upper edge of each line: on top of those before it, where they are stacked."""
    base: dict[float, float] = {}
    tops = []
    for one in lines:
        if _is_stacked(one):
            for at, value in one.points:
                base[at] = base.get(at, 0.0) + value
            tops.append([(at, base[at]) for at, _ in one.points])
        else:
            tops.append(one.points)
    return tops


def _curve(frame: Frame, one: Line, top: list[Point], step: float) -> list[str]:
    parts, dash = [], "8 6" if "lineStyle" in one.fields else ""
    opacity = one.fields["fillOpacity"] / 100
    under = {at: edge - value for (at, value), (_, edge) in zip(one.points, top, strict=True)}
    for run in _runs(top, step):
        upper = [frame.at(point) for point in run]
        if opacity:
            lower = [frame.at((at, under.get(at, 0.0))) for at, _ in reversed(run)]
            parts.append(area([*upper, *lower], one.color, opacity=opacity))
        parts.append(line(upper, one.color, width=one.fields["lineWidth"], dash=dash))
    return parts


def _runs(points: list[Point], step: float) -> list[list[Point]]:
    """The line cut where points are missing."""
    runs: list[list[Point]] = [[]]
    for point in points:
        if runs[-1] and point[0] - runs[-1][-1][0] > 1.5 * step:
            runs.append([])
        runs[-1].append(point)
    return [run if len(run) > 1 else [run[0], (run[0][0] + step, run[0][1])] for run in runs]


def _bars(frame: Frame, one: Line, step: float) -> list[str]:
    width = max(frame.plot.w * step / (frame.end - frame.start) - 0.6, 0.8)
    parts = []
    for point in one.points:
        x, y = frame.at(point)
        tall = frame.plot.y + frame.plot.h - y
        if tall > 0:
            parts.append(rect(Box(x - width / 2, y, width, tall), one.color))
    return parts


def _axes(frame: Frame, marks: list[float], fields: Json) -> list[str]:
    plot, parts = frame.plot, []
    for mark in marks:
        _, y = frame.at((frame.start, mark))
        parts.append(line([(plot.x, y), (plot.x + plot.w, y)], RULE))
        written = shown(mark, fields)
        parts.append(text(plot.x - 6, y + 4, written, size=10, fill=FAINT, anchor="end"))
    for at, written in times(frame.start, frame.end, plot.w):
        x, _ = frame.at((at, 0))
        parts.append(text(x, plot.y + plot.h + 14, written, size=10, fill=FAINT, anchor="middle"))
    return parts


def _legend(lines: list[Line], box: Box) -> tuple[list[str], float]:
    """The lines' names in rows at the bottom, and the height they take."""
    rows: list[list[tuple[float, Line]]] = [[]]
    left = 0.0
    for one in lines:
        width = 24 + min(len(one.name) * 11 * LETTER, box.w - 30)
        if rows[-1] and left + width > box.w:
            rows.append([])
            left = 0.0
        rows[-1].append((left, one))
        left += width
    rows = rows[:4]
    parts = []
    for place, row in enumerate(rows):
        y = box.y + box.h - 15 * (len(rows) - place) + 11
        for x, one in row:
            parts.append(rect(Box(box.x + x, y - 5, 12, 3), one.color))
            parts.append(text(box.x + x + 16, y, fit(one.name, box.w - 16, 11), size=11, fill=INK))
    return parts, 15.0 * len(rows) + 4
