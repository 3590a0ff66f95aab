"""How long a query may go without a commit: windows that follow its trigger and its batches."""

from __future__ import annotations

import msgspec

from ..listener.query import Query
from .policy import Limits

STALL_CRITICAL_SECONDS = 900.0
"""A stall with an ordinary cause is critical after this time at the latest."""


class Window(msgspec.Struct, frozen=True, gc=False):
    """``W = max(floor, max(trigger interval, longest recent batch) x (tolerance + 2))``.

    In seconds. Flink's operator sizes its checkpoint window the same way. ``interval`` is None for
    the window of a batch in flight: a batch begins after the trigger interval.
    """

    seconds: float
    floor: float
    interval: float | None
    longest: float
    tolerance: float

    def __str__(self) -> str:
        longest = f"{self.longest:.1f} s longest recent batch"
        if self.interval is not None:
            longest = f"max({self.interval:g} s trigger, {longest})"
        return (
            f"{self.seconds:.0f} s = max({self.floor:g} s floor, "
            f"{longest} x ({self.tolerance:g} + 2))"
        )

    def critical_after(self, factor: float, most: float) -> float:
        """Seconds after which a warning becomes critical: never before the window."""
        return max(self.seconds, min(self.seconds * factor, most))


def stall_window(query: Query, limits: Limits) -> Window:
    """How long the query may go without a commit or a proof that it is idle."""
    interval = query.facts.trigger.interval_seconds if query.facts is not None else 0.0
    return _window(query, limits, interval)


def batch_window(query: Query, limits: Limits) -> Window:
    """How long a batch in flight may make no progress.

    With a ``realTime`` trigger, a batch lasts as long as the trigger interval.
    """
    trigger = query.facts.trigger if query.facts is not None else None
    lasts = trigger is not None and trigger.is_real_time
    return _window(query, limits, trigger.interval_seconds if trigger and lasts else None)


def _window(query: Query, limits: Limits, interval: float | None) -> Window:
    """Size a window.

    Before the first commit or idle event of a run, the usual batch duration is not known and the
    first batch is often the longest: until then the start grace is the floor.
    """
    longest = max(query.baseline, default=0.0)
    floor = limits.stall_floor_seconds
    if not query.activity_seen:
        floor = max(floor, limits.start_grace_seconds)
    seconds = max(floor, max(interval or 0.0, longest) * (limits.stall_tolerance + 2))
    return Window(seconds, floor, interval, longest, limits.stall_tolerance)
