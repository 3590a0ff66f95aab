"""The limits of queries, and the windows that follow from them."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from ..listener.state.flow import Declared
from ..listener.state.query import Query

# -- policy -----------------------------------------------------------------------------------
# The expected queries, and the limits by query name pattern.


Seconds = Annotated[float, Meta(gt=0)]
Grace = Annotated[float, Meta(ge=0)]
_Factor = Annotated[float, Meta(ge=1)]
_Share = Annotated[float, Meta(gt=0, le=1)]
_Count = Annotated[int, Meta(ge=1, le=16)]


RESTART_WINDOW_SECONDS = 600.0
"""The time in which the failures of ``restart_budget`` count."""


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that are settings of all queries, and of queries by name pattern."""

    # Stalls and slow batches
    stall_floor_seconds: Seconds = 60.0
    """The smallest window W. `W = max(floor, max(trigger interval, longest recent batch) x
    (tolerance + 2))`; for a batch in flight without the trigger interval."""
    stall_tolerance: Grace = 1.0
    """How many more batch times W allows."""
    stall_critical_factor: _Factor = 3.0
    """A stall with an ordinary cause (a task runs, no executor, no free slot) is a warning at W
    and critical at this many W, after 15 minutes at the latest."""
    slow_critical_factor: _Factor = 10.0
    """A running batch whose tasks still finish is critical after this many W ..."""
    slow_critical_seconds: Seconds = 1800.0
    """... and after this long at the latest."""
    start_grace_seconds: Grace = 120.0
    """How long a started or expected query may show no activity: `StreamingQueryMissing`."""
    gone_grace_seconds: Grace = 60.0
    """How long a query that ended may take to come back: `StreamingQueryStopped`."""
    failed_grace_seconds: Grace = 0.0
    """How long a query that failed may take to recover before an alert fires, also if its process
    ends meanwhile: then a warning says so, and the next process goes on counting."""
    restart_budget: _Count = 3
    """This many failures within ten minutes: `StreamingQueryFlapping`."""
    # Lag, input and data loss
    lag_allowed_offsets: Grace = 1000.0
    """How far behind a query may be, in offsets."""
    lag_allowed_seconds: Seconds | None = None
    """How long the first unread record may wait; `StreamingQueryLagging` is critical at three
    times that. Example: `300`"""
    trend_window_seconds: Seconds = 300.0
    """How long lag must have risen, or a watermark not advanced."""
    expected_input_seconds: Seconds | None = None
    """A query that reads no rows for this long is reported (`StreamingInputMissing`). Without it,
    idle is healthy. Example: `900`"""
    data_loss_warning_ratio: _Share = 0.7
    """`StreamingDataLossRisk`: the share of a source's retention that unread data may use."""
    data_loss_critical_ratio: _Share = 0.9
    """The share from which it is critical."""


class Limits(LimitSettings, frozen=True, kw_only=True):
    """The limits of one query; times in seconds."""

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
    ends: bool = False
    """Whether the process ends: there is no later evaluation."""

    def at_end(self, *, crashed: bool) -> Policy:
        """The policy for a process that ends: what still has time is reported now.

        ``gone_grace_seconds`` is dropped only if the process crashed: otherwise it stops its
        queries itself.
        """
        over = {"gone_grace_seconds": 0.0} if crashed else {}
        overrides = tuple(
            (pattern, {name: limit for name, limit in changes.items() if name not in over})
            for pattern, changes in self.overrides
        )
        return replace(
            self, defaults=replace(self.defaults, **over), overrides=overrides, ends=True
        )

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
