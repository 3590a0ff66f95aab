"""Durations for people."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """``95 s``, ``40 min``, ``3 h 20 min``, ``9 d 4 h``: seconds in the largest suitable units.

    A unit is suitable from two of it on. Minutes and smaller units stand alone; hours and days are
    followed by the next smaller unit, unless there is none of it. What is left is cut off. The
    status page (``age`` in ``words.js``) follows the same rule.
    """
    whole = max(0, round(seconds))
    if whole < 2 * 60:
        return f"{whole} s"
    if whole < 2 * 3600:
        return f"{whole // 60} min"
    if whole < 2 * 86_400:
        return _pair(whole // 60, 60, "h", "min")
    return _pair(whole // 3600, 24, "d", "h")


def _pair(count: int, size: int, unit: str, smaller: str) -> str:
    units, rest = divmod(count, size)
    return f"{units} {unit} {rest} {smaller}" if rest else f"{units} {unit}"
