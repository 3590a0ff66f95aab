"""What is allowed: the roster and the limits, by query name pattern."""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace


class Limits(msgspec.Struct, frozen=True):
    """The limits of one query; times in seconds."""

    stall_floor_seconds: float = 60.0
    stall_tolerance: float = 1.0
    start_grace_seconds: float = 120.0
    gone_grace_seconds: float = 60.0
    failed_grace_seconds: float = 0.0
    """How long a query that failed may take to recover before anybody is notified."""
    stall_critical_factor: float = 3.0
    """After how many windows a stall with an ordinary cause is critical (at most 15 minutes)."""
    slow_critical_factor: float = 10.0
    """After how many windows a batch in flight is critical, though its tasks finish ..."""
    slow_critical_seconds: float = 1800.0
    """... and after how long at the latest."""
    lag_allowed_offsets: float = 1000.0
    lag_allowed_seconds: float | None = None
    """How long the first unread record may wait."""
    expected_input_seconds: float | None = None
    """How long the query may read no rows; None where it may for ever."""
    trend_window_seconds: float = 300.0
    """How long lag must have risen, or a watermark stood, before anybody is told."""
    data_loss_warning_ratio: float = 0.7
    """How much of a source's retention what waits may use up before anybody is told ..."""
    data_loss_critical_ratio: float = 0.9
    """... and before somebody is woken up."""
    restart_budget: int = 3
    """How many failures within ``restart_window_seconds`` make a query a flapping one."""
    restart_window_seconds: float = 600.0
    ignore: bool = False


class Policy(msgspec.Struct, frozen=True):
    """The roster of queries that must be there, and everybody's limits.

    A probe report older than ``probe_stale_seconds`` says nothing of the present; unless one
    is expected (a replay has none), nobody is told that it is silent.
    """

    expected: tuple[str, ...] = ()
    defaults: Limits = Limits()
    overrides: tuple[tuple[str, dict[str, float | bool]], ...] = ()
    probe_stale_seconds: float = 4.0
    probe_expected: bool = False

    def at_end(self, *, crashed: bool) -> Policy:
        """The same for a process that ends: what waits for a grace would never be reported.

        That a query is gone is news only where the process crashes.
        """
        over = {"failed_grace_seconds": 0.0} | ({"gone_grace_seconds": 0.0} if crashed else {})
        overrides = tuple(
            (pattern, {name: one for name, one in changes.items() if name not in over})
            for pattern, changes in self.overrides
        )
        return replace(self, defaults=replace(self.defaults, **over), overrides=overrides)

    def limits(self, name: str) -> Limits:
        """The defaults, changed by each pattern that matches, in the order given."""
        limits = self.defaults
        for pattern, changes in self.overrides:
            if fnmatchcase(name, pattern):
                limits = replace(limits, **changes)
        return limits
