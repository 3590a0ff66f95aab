"""The expected queries, and the limits by query name pattern."""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace

from ..listener.flow import Declared


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
