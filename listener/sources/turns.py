"""Whose turn it is when there are more runs than may be polled in one interval. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping


def next_turn(
    due: Iterable[str], polled_at: Mapping[str, float], *, now: float, interval: float, most: int
) -> list[str]:
    """The runs to poll now: those that wait longest, at most ``most`` in any ``interval``.

    ``polled_at`` says when each run was last polled; seconds, on one clock.
    """
    lately = sum(now - at < interval for at in polled_at.values())
    longest_first = sorted(due, key=lambda run_id: polled_at.get(run_id, -math.inf))
    return longest_first[: max(0, most - lately)]
