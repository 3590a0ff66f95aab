"""Failures outlive the process: read from the spool, given to their queries, and kept there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from ..alerting.kept_failures import kept_failures
from ..alerting.policy import Policy
from ..listener.past_failures import FailedQuery, PastFailures, shifted
from ..listener.snapshot import Snapshot
from ..listener.state import State

CLOCK_SET_SECONDS = 5.0
"""The wall clock was set when it has moved by more against the monotonic one."""


class KeepsFailures(Protocol):
    """Where failures outlive the process; their times are Unix seconds there."""

    def take_failures(self) -> tuple[FailedQuery, ...]:
        """What an earlier process has left, once; empty where it is not known (yet)."""
        ...

    def offer_failures(self, kept: tuple[FailedQuery, ...]) -> None:
        """Keep these and no others; never waits."""
        ...


class Remembering:
    """Used by the worker's thread. Without a spool it does nothing.

    ``redact`` goes over the error classes before anything is kept.
    """

    def __init__(
        self, spool: KeepsFailures | None = None, redact: Callable[[str], str] = str
    ) -> None:
        self._spool = spool
        self._redact = redact
        self._past = PastFailures()
        self._wall_of_zero: float | None = None
        self._offered: tuple[tuple[FailedQuery, ...], float] | None = None

    def restore(self, state: State, now: float, wall: float) -> None:
        """Give the queries that were met since the last time the failures they had before."""
        if self._spool is None:
            return
        kept = self._spool.take_failures()
        if kept:
            self._past.add(kept, now=now, wall=wall, began_at=state.began_at)
            self._offered = None
        state.restore(self._past)

    def keep(self, snapshot: Snapshot, policy: Policy, wall: float) -> None:
        """Hand over what the next process has to know."""
        if self._spool is None:
            return
        kept = kept_failures(snapshot.queries, self._past.unmet, policy, snapshot.at)
        seconds = self._clock(snapshot.at, wall)
        if (kept, seconds) != self._offered:
            self._offered = kept, seconds
            self._spool.offer_failures(tuple(self._written(one, seconds) for one in kept))

    def _written(self, one: FailedQuery, seconds: float) -> FailedQuery:
        deaths = tuple(
            replace(died, error_class=self._redact(died.error_class)) for died in one.deaths
        )
        return shifted(replace(one, deaths=deaths), seconds)

    def _clock(self, now: float, wall: float) -> float:
        """What the wall clock shows at monotonic 0.

        It is the same until the clock is set, so that each failure is written once.
        """
        known, new = self._wall_of_zero, wall - now
        if known is None or abs(new - known) > CLOCK_SET_SECONDS:
            known = self._wall_of_zero = new
        return known
