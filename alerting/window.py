"""How long a query may go without a commit: a window that sizes itself."""

from __future__ import annotations

import msgspec

from ..listener.query import Query
from .policy import Limits


class Window(msgspec.Struct, frozen=True, gc=False):
    """``W = max(floor, max(trigger interval, p99 of recent batches) x (tolerance + 2))``.

    Seconds. After Flink's operator, which sizes its checkpoint window alike.
    """

    seconds: float
    floor: float
    interval: float
    p99: float
    tolerance: float

    def __str__(self) -> str:
        return (
            f"{self.seconds:.0f} s = max({self.floor:g} s floor, max({self.interval:g} s trigger, "
            f"{self.p99:.1f} s p99 of recent batches) x ({self.tolerance:g} + 2))"
        )


def stall_window(query: Query, limits: Limits) -> Window:
    """Size the window of one query.

    Before a run's first commit or idleness nothing is known of its pace: the start grace
    is the floor then, for a first batch is often the longest of all.
    """
    interval = query.facts.trigger.interval_seconds if query.facts is not None else 0.0
    # The 99th percentile of at most 50 values is their maximum.
    p99 = max(query.baseline, default=0.0)
    floor = limits.stall_floor_seconds
    if not query.first_sign_seen:
        floor = max(floor, limits.start_grace_seconds)
    seconds = max(floor, max(interval, p99) * (limits.stall_tolerance + 2))
    return Window(seconds, floor, interval, p99, limits.stall_tolerance)
