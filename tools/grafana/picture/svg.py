"""Strokes and words of an SVG, as text. Lengths are pixels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from xml.sax.saxutils import escape

INK, FAINT, RULE, GROUND, PAPER = "#1f2430", "#687083", "#e3e6ec", "#f4f5f8", "#ffffff"
SHARES = (0.2126, 0.7152, 0.0722)
"""What red, green and blue bring to how light a colour is."""
LETTER = 0.56
"""The width of a letter by the size of its type, on the average."""


class Box(NamedTuple):
    """A place to draw in."""

    x: float
    y: float
    w: float
    h: float

    def inset(self, left: float, top: float, right: float, bottom: float) -> Box:
        """The place inside its margins."""
        return Box(self.x + left, self.y + top, self.w - left - right, self.h - top - bottom)


def fit(words: str, width: float, size: float) -> str:
    """The words, cut where they would leave ``width``."""
    room = int(width / (size * LETTER))
    return words if len(words) <= room else words[: max(room - 1, 1)] + "…"


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: float = 12,
    fill: str = INK,
    anchor: str = "start",
    bold: bool = False,
) -> str:
    """Words on a line that begins, ends or has its middle at ``x``."""
    weight = ' font-weight="600"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}"'
    return f'<text {place} fill="{fill}"{weight}>{escape(words)}</text>'


def rect(box: Box, fill: str, *, stroke: str = "none", radius: float = 0) -> str:
    """A filled rectangle."""
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.w:.1f}" height="{box.h:.1f}"'
    return f'<rect {place} rx="{radius:g}" fill="{fill}" stroke="{stroke}"/>'


def line(
    points: Iterable[tuple[float, float]], stroke: str, *, width: float = 1, dash: str = ""
) -> str:
    """An open line through ``points``."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    poll = f'fill="none" stroke="{stroke}" stroke-width="{width:g}"{dashed}'
    return f'<polyline points="{path}" {poll}/>'


def area(points: Iterable[tuple[float, float]], fill: str, *, opacity: float) -> str:
    """A filled shape."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polygon points="{path}" fill="{fill}" fill-opacity="{opacity:g}"/>'


def on(ground: str) -> str:
    """Black or white, whichever reads better on ``ground`` (contrast as in WCAG 2)."""
    channels = [int(ground[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    light = sum(share * part**2.2 for share, part in zip(SHARES, channels, strict=True))
    against_white, against_black = 1.05 / (light + 0.05), (light + 0.05) / 0.05
    return "#ffffff" if against_white > against_black else "#000000"


def document(width: float, height: float, parts: Iterable[str]) -> str:
    """The whole picture."""
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    font = "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>'
    return "\n".join([head, *parts, "</svg>"]) + "\n"
