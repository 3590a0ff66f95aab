"""A recording of a program's output -> a picture that moves: text in SVG, light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

ROWS = 32
LEAST_COLUMNS = 88
LINE = 18
CHARACTER = 8.0
MARGIN = 16
LONGEST_PAUSE = 1.6
"""Longer waits for the next line are cut."""
TYPING_SECONDS = 0.9
LAST_SECONDS = 9.0
"""How long the last screen stays before the picture begins again."""
STYLE = """\
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
white-space:pre;fill:#1f2328}
.frame{fill:#fff;stroke:#d0d7de}.time{fill:#656d76}.good{fill:#1a7f37}.bad{fill:#cf222e}
.page{fill:#0550ae}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.frame{fill:#0d1117;stroke:#30363d}
.time{fill:#8d96a0}.good{fill:#3fb950}.bad{fill:#ff7b72}.page{fill:#79c0ff}}
@media (prefers-reduced-motion:reduce){*{animation:none!important}}
"""
_TIME = re.compile(r"\[ *[\d.]+ s\]")


class Line(NamedTuple):
    """A line of output, and the seconds since the start when it came."""

    seconds: float
    text: str


def picture(title: str, command: str, lines: Sequence[Line]) -> str:
    """The SVG of a terminal in which ``command`` is run, and its output comes as it came.

    Without animation, as in print and where people ask for less motion, it is the last screen.
    """
    shown = [Line(0.0, f"$ {command}"), *_paced(lines)]
    total = shown[-1].seconds + LAST_SECONDS
    styles, texts = [], []
    for number, line in enumerate(shown):
        if line.text.strip():
            styles.append(_appears(number, line.seconds / total))
            texts.append(_text(number, line.text))
    columns = max(LEAST_COLUMNS, *(len(line.text) for line in shown))
    width = round(columns * CHARACTER + 2 * MARGIN)
    height = ROWS * LINE + 2 * MARGIN
    scrolling = _scrolling(shown, total)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>\n"
        f"<style>\n{STYLE}.line,.all{{animation-duration:{total:.1f}s;"
        f"animation-iteration-count:infinite;animation-timing-function:step-end}}\n"
        f"{scrolling}{''.join(styles)}</style>\n"
        f'<rect class="frame" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>\n'
        f'<svg x="{MARGIN}" y="{MARGIN}" width="{width - 2 * MARGIN}" '
        f'height="{height - 2 * MARGIN}"><g class="all">\n{"".join(texts)}</g></svg>\n</svg>\n'
    )


def _paced(lines: Iterable[Line]) -> list[Line]:
    """The lines at the times when the picture shows them."""
    paced = []
    at, before = TYPING_SECONDS, None
    for line in lines:
        at += 0.0 if before is None else min(line.seconds - before, LONGEST_PAUSE)
        before = line.seconds
        paced.append(Line(at, line.text))
    return paced


def _appears(number: int, share: float) -> str:
    at = f"{100 * share:.2f}%"
    return (
        f"@keyframes l{number}{{0%{{opacity:0}}{at}{{opacity:1}}}}"
        f".l{number}{{animation-name:l{number}}}\n"
    )


def _scrolling(shown: Sequence[Line], total: float) -> str:
    """The whole text goes up by a line for each beyond the last row."""
    steps = {
        f"{100 * line.seconds / total:.2f}": number + 1 - ROWS
        for number, line in enumerate(shown)
        if number >= ROWS
    }
    frames = "".join(
        f"{at}%{{transform:translateY({-LINE * count}px)}}" for at, count in steps.items()
    )
    last = max(0, len(shown) - ROWS)
    return (
        f"@keyframes up{{0%{{transform:none}}{frames}}}"
        f".all{{animation-name:up;transform:translateY({-LINE * last}px)}}\n"
    )


def _text(number: int, text: str) -> str:
    time = _TIME.match(text)
    begin = time[0] if time is not None else ""
    rest = text[len(begin) :]
    kind = _kind(rest)
    marked = f'<tspan class="{kind}">{escape(rest, quote=False)}</tspan>' if kind else escape(rest)
    stamp = f'<tspan class="time">{begin}</tspan>' if begin else ""
    top = LINE * number + LINE - 5
    return f'<text class="line l{number}" y="{top}">{stamp}{marked}</text>\n'


def _kind(text: str) -> str:
    if text.startswith(("  |", "  +")):
        return "page"
    if "failed" in text or "a page arrives" in text:
        return "bad"
    is_healthy = text.endswith("queries healthy") or "as expected" in text
    return "good" if is_healthy else ""
