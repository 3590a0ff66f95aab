"""Failures, and when alerts opened: read from the spool, applied, and kept there."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from ..listener.past_failures import (
    KEEP_SECONDS,
    MAX_KEPT,
    FailedQuery,
    PastFailures,
    mark_of,
    shifted,
)
from ..listener.state.query import Query
from ..listener.state.snapshot import Snapshot
from ..listener.state.state import State
from .lifecycle import Lifecycle, Opened
from .policy import RESTART_WINDOW_SECONDS
from .rules.query_flapping import is_committed, repeated
from .spool import Kept, Spool

# -- kept failures ----------------------------------------------------------------------------
# The failures that the next process of the app needs for its rules.


def kept_failures(
    queries: Iterable[Query], unmet: Iterable[FailedQuery], now: float
) -> tuple[FailedQuery, ...]:
    """For each query, the failures within its window and those that may show a poison batch.

    ``unmet`` are queries of earlier processes that this process has not seen. Queries with the same
    name are kept without failures: their own id shows that they do not continue a failed one.
    """
    queries = tuple(queries)
    found = [_trimmed(one, now) for one in unmet]
    found += [_of(query, now) for query in queries if query.deaths]
    failed = sorted((one for one in found if one.deaths), key=lambda one: one.deaths[-1].at)
    kept = {one.query_id: one for one in failed[-MAX_KEPT:]}
    marks = {one.mark for one in kept.values() if one.mark}
    if marks:
        namesakes = [_bare(query) for query in queries if mark_of(query.name) in marks]
        namesakes += [one for one in found if one.mark in marks]
        for one in namesakes[: MAX_KEPT - len(kept)]:
            kept.setdefault(one.query_id, one)
    return tuple(kept.values())


def _of(query: Query, now: float) -> FailedQuery:
    is_open = query.unrecovered_deaths > 0 and not is_committed(query, query.deaths[-1])
    unrecovered = query.unrecovered_deaths if is_open else 0
    one = replace(_bare(query), deaths=query.deaths, unrecovered_deaths=unrecovered)
    return _trimmed(one, now)


def _bare(query: Query) -> FailedQuery:
    return FailedQuery(query.query_id, mark_of(query.name), gone_at=query.gone_at)


def _trimmed(one: FailedQuery, now: float) -> FailedQuery:
    fresh = sum(now - died.at <= RESTART_WINDOW_SECONDS for died in one.deaths)
    young = [died for died in one.deaths if now - died.at <= KEEP_SECONDS]
    same = repeated(young) if one.unrecovered_deaths else 0
    deaths = one.deaths[len(one.deaths) - max(fresh, same) :]
    unrecovered = min(one.unrecovered_deaths, len(deaths))
    return replace(one, deaths=deaths, unrecovered_deaths=unrecovered)


# -- remembering ------------------------------------------------------------------------------


CLOCK_SET_SECONDS = 5.0
"""A larger step against the monotonic clock means that the wall clock was set."""


class Remembering:
    """Restores and keeps them; used by the worker's thread. Without a spool it does nothing.

    ``left`` is what an earlier process left, until ``restore`` applies it. ``redact`` cleans the
    error classes before they are kept.
    """

    def __init__(self, spool: Spool | None = None, redact: Callable[[str], str] = str) -> None:
        self.left: Kept | None = None
        self._spool = spool
        self._redact = redact
        self._past = PastFailures()
        self._wall_of_zero: float | None = None
        self._offered: tuple[object, ...] = ()

    def restore(self, state: State, lifecycle: Lifecycle, now: float, wall: float) -> None:
        """Apply what was left, also to the queries that have appeared since the last call."""
        left, self.left = self.left, None
        if left is not None:
            self._past.add(left.failures, now=now, wall=wall, began_at=state.began_at)
            lifecycle.restore_opened([_shifted(record, now - wall) for record in left.opened], now)
            self._offered = ()
        state.restore(self._past)

    def keep(self, snapshot: Snapshot, lifecycle: Lifecycle, wall: float) -> None:
        """Store what the next process needs."""
        if self._spool is None:
            return
        failures = kept_failures(snapshot.queries, self._past.unmet, snapshot.at)
        newest = (failures, lifecycle.opened, self._clock(snapshot.at, wall))
        if newest != self._offered:
            self._offered = newest
            _, opened, seconds = newest
            self._spool.offer_history(
                tuple(self._written(failed, seconds) for failed in failures),
                tuple(_shifted(record, seconds) for record in opened),
            )

    def _written(self, failed: FailedQuery, seconds: float) -> FailedQuery:
        deaths = tuple(
            replace(died, error_class=self._redact(died.error_class)) for died in failed.deaths
        )
        return shifted(replace(failed, deaths=deaths), seconds)

    def _clock(self, now: float, wall: float) -> float:
        """The wall-clock time at monotonic 0.

        It is constant until the clock is set, so that each failure is written once.
        """
        known, new = self._wall_of_zero, wall - now
        if known is None or abs(new - known) > CLOCK_SET_SECONDS:
            known = self._wall_of_zero = new
        return known


def _shifted(record: Opened, seconds: float) -> Opened:
    """The record on a clock that is ``seconds`` ahead."""
    return replace(record, at=tuple(at + seconds for at in record.at))
