"""Offsets of streaming sources, as far as their shape is known.

Kafka reports ``{"topic": {"0": 42}}``, rate sources an integer, event logs the same
as text. Anything else is kept as it is and has no lag.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec


def parse_offsets(value: Any) -> Any:
    """Give offsets as values: event logs hold them as JSON inside a string."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.MsgspecError:
        return value


def lag_between(end: Any, latest: Any) -> float | None:
    """Sum of ``latest - end`` over all partitions, each at least 0; None where unknown.

    A partition without an end offset is new, not wholly behind: it does not count.
    """
    if _is_number(end) and _is_number(latest):
        return max(0.0, float(latest) - float(end))
    if not isinstance(end, dict) or not isinstance(latest, dict):
        return None
    parts = [lag_between(end[key], latest[key]) for key in end.keys() & latest.keys()]
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
