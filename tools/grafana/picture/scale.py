"""Axes: round numbers from nothing to the largest value, and times of day."""

from __future__ import annotations

import math
from datetime import datetime, timezone

STEPS = (1, 2, 2.5, 5, 10)
MINUTES = (0.25, 0.5, 1, 2, 5, 10, 15, 30, 60)
TICKS = 4
SPANS = (15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
MINUTE = 60


def heights(top: float, unit: str) -> list[float]:
    """Marks from 0 up, so that the last is ``top`` or above."""
    rough = (top or 1) / TICKS
    size: float = 10 ** math.floor(math.log10(rough))
    step = next(one * size for one in STEPS if one * size >= rough * 0.999)
    if unit == "s" and top > MINUTE:
        step = next((one for one in SPANS if one >= rough), step)
    return [place * step for place in range(math.ceil((top or 1) / step - 1e-9) + 1)]


def times(start: float, end: float, width: float) -> list[tuple[float, str]]:
    """Moments (Unix seconds) for marks 90 pixels apart or more, and how they are written."""
    few = max(1, int(width / 90))
    wanted = (end - start) / MINUTE / few
    step = MINUTE * next((one for one in MINUTES if one >= wanted), MINUTES[-1])
    first = math.ceil(start / step) * step
    form = "%H:%M" if step >= MINUTE else "%H:%M:%S"
    count = int((end - first) / step) + 1
    moments = [first + place * step for place in range(count)]
    return [(at, datetime.fromtimestamp(at, timezone.utc).strftime(form)) for at in moments]
