"""A dashboard's annotations: what happened, as moments and as spans of time."""

from __future__ import annotations

from typing import NamedTuple

from tools.grafana.picture.answers import Answers
from tools.grafana.picture.svg import Box, line, rect
from tools.grafana.picture.values import Json


class Note(NamedTuple):
    """From when to when (Unix seconds; the same for a moment), and in which colour."""

    start: float
    end: float
    color: str


def notes(dashboard: Json, answers: Answers) -> list[Note]:
    """The values of the enabled annotations in the time shown."""
    found = []
    for annotation in dashboard["annotations"]["list"]:
        if annotation["enable"]:
            for series in answers.drawn(annotation):
                read = _moments if annotation["useValueForTime"] else _spans
                found += read(series.points, answers, annotation["iconColor"])
    return found


def _moments(points: list[tuple[float, float]], answers: Answers, color: str) -> list[Note]:
    """The values are moments, in milliseconds."""
    moments = sorted({value / 1000 for _, value in points})
    return [Note(at, at, color) for at in moments if answers.start <= at <= answers.end]


def _spans(points: list[tuple[float, float]], answers: Answers, color: str) -> list[Note]:
    """As long as the value is above 0, without a gap."""
    spans: list[Note] = []
    for at, value in points:
        if value <= 0:
            continue
        if spans and at - spans[-1].end <= 1.5 * answers.step:
            spans[-1] = spans[-1]._replace(end=at)
        else:
            spans.append(Note(at, at, color))
    return spans


def drawn_notes(noted: list[Note], answers: Answers, plot: Box) -> list[str]:
    """Dashed lines, and a faint ground between two of them."""
    scale, parts = plot.w / (answers.end - answers.start), []
    for note in noted:
        left, right = (plot.x + (at - answers.start) * scale for at in note[:2])
        if right > left:
            ground = rect(Box(left, plot.y, right - left, plot.h), note.color)
            parts.append(f'<g opacity="0.08">{ground}</g>')
        edge = [(left, plot.y), (left, plot.y + plot.h)]
        parts.append(line(edge, note.color, dash="3 3"))
    return parts
