"""Failures and flapping that outlive the process: read from the spool, applied, and kept there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from ..listener.past_failures import FailedQuery, PastFailures, shifted
from ..listener.snapshot import Snapshot
from ..listener.state import State
from .kept_failures import kept_failures
from .lifecycle.flap_guard import FlapHistory
from .lifecycle.lifecycle import Lifecycle
from .policy import Policy

CLOCK_SET_SECONDS = 5.0
"""A larger step against the monotonic clock means that the wall clock was set."""


class KeepsFailures(Protocol):
    """Where failures and flapping outlive the process; their times are Unix seconds there."""

    def take_failures(self) -> tuple[FailedQuery, ...]:
        """The failures of an earlier process, returned once; empty while not yet known."""
        ...

    def offer_failures(self, kept: tuple[FailedQuery, ...]) -> None:
        """Store exactly these; never waits."""
        ...

    def take_flaps(self) -> tuple[FlapHistory, ...]:
        """How often alerts fired in earlier processes; like ``take_failures``."""
        ...

    def offer_flaps(self, kept: tuple[FlapHistory, ...]) -> None:
        """Store exactly these; never waits."""
        ...


class Remembering:
    """Restores and keeps them; used by the worker's thread. Without a spool it does nothing.

    ``redact`` cleans the error classes before they are kept.
    """

    def __init__(
        self, spool: KeepsFailures | None = None, redact: Callable[[str], str] = str
    ) -> None:
        self._spool = spool
        self._redact = redact
        self._past = PastFailures()
        self._wall_of_zero: float | None = None
        self._offered: tuple[tuple[FailedQuery, ...], float] | None = None
        self._flaps: tuple[tuple[FlapHistory, ...], float] | None = None

    def restore(self, state: State, now: float, wall: float) -> None:
        """Apply kept failures to the queries that have appeared since the last call."""
        if self._spool is None:
            return
        kept = self._spool.take_failures()
        if kept:
            self._past.add(kept, now=now, wall=wall, began_at=state.began_at)
            self._offered = None
        state.restore(self._past)

    def keep(self, snapshot: Snapshot, policy: Policy, wall: float) -> None:
        """Store the failures that the next process needs."""
        if self._spool is None:
            return
        kept = kept_failures(snapshot.queries, self._past.unmet, policy, snapshot.at)
        seconds = self._clock(snapshot.at, wall)
        if (kept, seconds) != self._offered:
            self._offered = kept, seconds
            self._spool.offer_failures(tuple(self._written(one, seconds) for one in kept))

    def restore_flaps(self, lifecycle: Lifecycle, now: float, wall: float) -> None:
        """Add how often alerts fired in earlier processes."""
        left = self._spool.take_flaps() if self._spool is not None else ()
        if left:
            lifecycle.restore_flaps([one.shifted(now - wall) for one in left], now)
            self._flaps = None

    def keep_flaps(self, lifecycle: Lifecycle, now: float, wall: float) -> None:
        """Store how often alerts have fired."""
        if self._spool is None:
            return
        newest = lifecycle.flaps, self._clock(now, wall)
        if newest != self._flaps:
            self._flaps = newest
            self._spool.offer_flaps(tuple(one.shifted(newest[1]) for one in newest[0]))

    def _written(self, one: FailedQuery, seconds: float) -> FailedQuery:
        deaths = tuple(
            replace(died, error_class=self._redact(died.error_class)) for died in one.deaths
        )
        return shifted(replace(one, deaths=deaths), seconds)

    def _clock(self, now: float, wall: float) -> float:
        """The wall-clock time at monotonic 0.

        It is constant until the clock is set, so that each failure is written once.
        """
        known, new = self._wall_of_zero, wall - now
        if known is None or abs(new - known) > CLOCK_SET_SECONDS:
            known = self._wall_of_zero = new
        return known
