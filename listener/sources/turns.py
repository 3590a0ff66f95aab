"""Which runs to poll when there are more than one interval allows. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping


def next_turn(
    due: Iterable[str], polled_at: Mapping[str, float], *, now: float, interval: float, most: int
) -> list[str]:
    """The runs to poll now: those waiting longest, at most ``most`` in any ``interval``.

    ``polled_at`` is when each run was last polled, in seconds on the same clock.
    """
    lately = sum(now - at < interval for at in polled_at.values())
    longest_first = sorted(due, key=lambda run_id: polled_at.get(run_id, -math.inf))
    return longest_first[: max(0, most - lately)]
