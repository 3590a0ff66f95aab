"""The limits of queries, and the windows that follow from them."""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace

from ..listener.flow import Declared
from ..listener.query import Query

# -- policy -----------------------------------------------------------------------------------
# The expected queries, and the limits by query name pattern.


class Limits(msgspec.Struct, frozen=True):
    """The limits of one query; times in seconds."""

    stall_floor_seconds: float = 60.0
    stall_tolerance: float = 1.0
    start_grace_seconds: float = 120.0
    gone_grace_seconds: float = 60.0
    failed_grace_seconds: float = 0.0
    """How long a failed query may take to recover before the alert fires."""
    stall_critical_factor: float = 3.0
    """A stall with an ordinary cause is critical after this many windows (at most 15 minutes)."""
    slow_critical_factor: float = 10.0
    """A batch in flight is critical after this many windows, even if its tasks finish ..."""
    slow_critical_seconds: float = 1800.0
    """... and at the latest after this time."""
    lag_allowed_offsets: float = 1000.0
    lag_allowed_seconds: float | None = None
    """How long the first unread record may wait."""
    expected_input_seconds: float | None = None
    """How long the query may read no rows; None for no limit."""
    trend_window_seconds: float = 300.0
    """How long lag must rise, or a watermark must not advance, before the alert fires."""
    data_loss_warning_ratio: float = 0.7
    """The share of a source's retention that unread data may use before a warning fires ..."""
    data_loss_critical_ratio: float = 0.9
    """... and before the alert is critical."""
    restart_budget: int = 3
    """A query is flapping after this many failures within ``restart_window_seconds``."""
    restart_window_seconds: float = 600.0
    ignore: bool = False


class Policy(msgspec.Struct, frozen=True):
    """The expected queries, and the limits of all queries.

    A probe report older than ``probe_stale_seconds`` is stale. A missing probe raises an alert only
    if ``probe_expected``: a replay has no probe.
    """

    expected: tuple[str, ...] = ()
    defaults: Limits = Limits()
    overrides: tuple[tuple[str, dict[str, float | bool]], ...] = ()
    probe_stale_seconds: float = 4.0
    probe_expected: bool = False
    declared: tuple[Declared, ...] = ()
    """What the settings say that queries read and write."""

    def at_end(self, *, crashed: bool) -> Policy:
        """The policy for a process that ends, without grace periods that would hide an alert.

        ``gone_grace_seconds`` is dropped only if the process crashed: otherwise it stops its
        queries itself.
        """
        over = {"failed_grace_seconds": 0.0} | ({"gone_grace_seconds": 0.0} if crashed else {})
        overrides = tuple(
            (pattern, {name: one for name, one in changes.items() if name not in over})
            for pattern, changes in self.overrides
        )
        return replace(self, defaults=replace(self.defaults, **over), overrides=overrides)

    def limits(self, name: str) -> Limits:
        """The defaults, overridden by each matching pattern in the given order."""
        limits = self.defaults
        for pattern, changes in self.overrides:
            if fnmatchcase(name, pattern):
                limits = replace(limits, **changes)
        return limits


# -- window -----------------------------------------------------------------------------------
# How long a query may go without a commit: windows that follow its trigger and its batches.


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
