"""The limits of queries, and the windows that follow from them."""

from __future__ import annotations

from enum import Enum
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from ..core.wall_time import Times, parse_time
from ..listener.mailbox import ProgramEnd
from ..listener.state.flow import Declared
from ..listener.state.freshness import Promise
from ..listener.state.query import Query

# -- policy -----------------------------------------------------------------------------------
# The expected queries, and the limits by query name pattern.

Seconds = Annotated[float, Meta(gt=0)]
Grace = Annotated[float, Meta(ge=0)]
_Share = Annotated[float, Meta(gt=0, le=1)]
TimeOfDay = Annotated[str, Meta(max_length=1000)]
_Count = Annotated[int, Meta(ge=1, le=16)]
_Bytes = Annotated[int, Meta(ge=1)]


RESTART_WINDOW_SECONDS = 600.0
"""The time in which the failures of ``restart_budget`` count."""


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that are settings of all queries, and of queries by name pattern."""

    # Stalls and slow batches
    stall_floor_seconds: Seconds = 60.0
    """The smallest window W. `W = max(floor, 3 x max(trigger interval, usual longest batch))`: the
    usual longest batch is the second longest of the last 49 hours. For a batch in flight, the
    trigger interval does not count."""
    stall_critical_seconds: Seconds = 600.0
    """A stall with an ordinary cause (a task runs, no executor, no free slot) is a warning at W
    and critical after this long, never before W."""
    slow_critical_seconds: Seconds = 1800.0
    """A batch that works, or waits for slots that another query holds, is critical after this
    long, never before W."""
    complete_by: TimeOfDay | None = None
    """By when a run of `once` or `availableNow` must have completed, on each day or on these days:
    `StreamingQueryMissing`. `[DAYS] HH:MM [ZONE]`, UTC without a zone.
    Example: `"mon-fri 06:00 Europe/Berlin"`"""
    start_grace_seconds: Grace = 300.0
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
    """How far behind a query may be, in offsets or records; a file counts as ten."""
    lag_allowed_seconds: Seconds | None = None
    """How long the first unread record may wait; `StreamingQueryLagging` is critical at three
    times that. Example: `300`"""
    trend_window_seconds: Seconds = 300.0
    """How long lag must have risen, or a watermark not advanced."""
    expected_input_seconds: Seconds | None = None
    """A query that reads no rows for this long is reported (`StreamingInputMissing`), and so is one
    of its sources. Without it, idle is healthy. Example: `900`"""
    data_loss_warning_ratio: _Share = 0.7
    """`StreamingDataLossRisk`: the share of a source's retention that unread data may use. It is
    critical once two thirds of the rest are used too: from 0.9 on, by default."""
    state_limit_bytes: _Bytes | None = None
    """How large the state of a query may become: `StreamingStateGrowing`, if it fills that within a
    day. RocksDB's files count, else the memory of the state. Example: `50000000000`"""
    freshness_seconds: Seconds | None = None
    """The promise that the newest data of a query is at most this old:
    [foresight.md](foresight.md#a-promise-in-numbers). Example: `600`"""
    freshness_objective: _Share = 0.99
    """The share of the time in which that is so, of 30 days."""


class Limits(LimitSettings, frozen=True, kw_only=True):
    """The limits of one query; times in seconds."""

    ignore: bool = False

    @property
    def deadlines(self) -> Times | None:
        """When runs must have completed; None if they may take any time.

        Raises:
            ValueError: ``complete_by`` cannot be read.

        """
        return None if self.complete_by is None else parse_time(self.complete_by)

    @property
    def promise(self) -> Promise | None:
        """How fresh the data is to be; None if that is not set."""
        seconds = self.freshness_seconds
        return None if seconds is None else Promise(seconds, self.freshness_objective)


Overrides = tuple[tuple[str, dict[str, float | bool | str]], ...]
"""By name pattern, the limits that differ."""


class Policy(msgspec.Struct, frozen=True):
    """The expected queries, and the limits of all queries.

    A probe report older than ``probe_stale_seconds`` is stale. A missing probe raises an alert only
    if ``probe_expected``: a replay has no probe.
    """

    expected: tuple[str, ...] = ()
    expected_errors: tuple[str, ...] = ()
    """Patterns of error classes and exception names."""
    defaults: Limits = Limits()
    overrides: Overrides = ()
    probe_stale_seconds: float = 4.0
    probe_expected: bool = False
    declared: tuple[Declared, ...] = ()
    """What the settings say that queries read and write."""
    ends: bool = False
    """Whether the process ends, so that there is no later evaluation: what still has time is
    reported now."""
    crashed: bool = False
    """Whether it ends by itself. Otherwise it stops its queries, which have their time."""
    program: ProgramEnd | None = None
    """How the main program ended, if nobody has announced that."""

    def limits(self, name: str) -> Limits:
        """The defaults, overridden by each matching pattern in the given order."""
        limits = self.defaults
        for pattern, changes in self.overrides:
            if fnmatchcase(name, pattern):
                limits = replace(limits, **changes)
        return limits

    @property
    def has_promises(self) -> bool:
        """Whether any query may promise how fresh it is."""
        limits = (changes.get("freshness_seconds") for _, changes in self.overrides)
        return self.defaults.freshness_seconds is not None or any(limits)

    def sets_deadline(self, name: str) -> bool:
        """Whether a pattern sets ``complete_by``, so that it is meant for this very query."""
        return any(
            fnmatchcase(name, pattern) and changes.get("complete_by") is not None
            for pattern, changes in self.overrides
        )


def is_remembered(policy: Policy, query: Query) -> bool:
    """Whether a query that has completed is followed on: a run is due, or its data gets older."""
    return has_deadline(policy, query) or policy.limits(query.base_name).promise is not None


def has_deadline(policy: Policy, query: Query) -> bool:
    """Whether runs of a query, which has a name, must have completed by a time of day."""
    return bool(query.name) and policy.limits(query.base_name).complete_by is not None


# -- window -----------------------------------------------------------------------------------
# How long a query may go without a commit: windows that follow its trigger and its batches.

WINDOW_FACTOR = 3.0
"""A query may take as long as so many of its batches, or of its trigger intervals."""


class WindowCause(str, Enum):
    """What decides how long a window is."""

    USUAL_BATCH = "usual_batch"
    ONLY_BATCH = "only_batch"
    TRIGGER = "trigger"
    FLOOR = "floor"
    START_GRACE = "start_grace"
    WITHOUT_CPU = "without_cpu"


class Window(msgspec.Struct, frozen=True, gc=False):
    """``W = max(floor, 3 x max(trigger interval, usual longest batch))``, and its cause."""

    seconds: float
    cause: WindowCause
    is_least: bool = False
    """Whether the floor is larger than any multiple."""


def stall_window(query: Query, limits: Limits) -> Window:
    """How long the query may go without a commit or a proof that it is idle."""
    interval = query.run.facts.trigger.interval_seconds if query.run.facts is not None else 0.0
    return _window(query, limits, interval)


def batch_window(query: Query, limits: Limits) -> Window:
    """How long a batch in flight may make no progress; it begins after the trigger interval.

    With a ``realTime`` trigger, a batch lasts as long as the trigger interval.
    """
    trigger = query.run.facts.trigger if query.run.facts is not None else None
    lasts = trigger is not None and trigger.is_real_time
    return _window(query, limits, trigger.interval_seconds if trigger and lasts else 0.0)


def most_without_cpu(limits: Limits) -> Window:
    """How long a batch without a job may use no CPU time, however long others have taken."""
    seconds = limits.stall_critical_seconds
    seconds = max(seconds, limits.stall_floor_seconds, limits.start_grace_seconds)
    return Window(seconds, WindowCause.WITHOUT_CPU, is_least=True)


def _window(query: Query, limits: Limits, interval: float) -> Window:
    """Size a window.

    The first batch of a run is often the longest: until a run commits or is idle, the start grace
    is the floor.
    """
    unit = query.history.usual_seconds
    cause = WindowCause.USUAL_BATCH
    if unit is None:
        # Until two batches are known, the only one is limited by the start grace.
        only = max((seconds for _, seconds in query.history.longest_batches), default=0.0)
        unit = min(only, limits.start_grace_seconds / WINDOW_FACTOR)
        cause = WindowCause.ONLY_BATCH
    if interval > unit:
        unit = interval
        cause = WindowCause.TRIGGER
    floor = limits.stall_floor_seconds
    least = WindowCause.FLOOR
    if not query.run.activity_seen and limits.start_grace_seconds > floor:
        floor = limits.start_grace_seconds
        least = WindowCause.START_GRACE
    if WINDOW_FACTOR * unit > floor:
        return Window(WINDOW_FACTOR * unit, cause)
    return Window(floor, least, is_least=True)
