"""The failures that earlier processes have kept, until their query is met in this one. Pure.

Which query is the same is for ``identity.py`` to say: the one of the same query id; or, under a new
id, the only living bearer of a name, of those that earlier processes knew the one that was there
last. Nobody is the same as a query without a name but itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from .ending import PAST_DEATHS
from .query import Died, Query

MAX_KEPT = 1000
"""Queries whose failures are kept: as many as are known when they are gone."""
KEEP_SECONDS = 30 * 24 * 3600.0
"""A batch that fails once a week is named; what nobody has met for a month is over."""
CLOCKS_DIFFER_SECONDS = 60.0
"""By as much may a failure lie ahead of the clock that reads it, and still be one of just now."""
LEAST_AGE_SECONDS = 1.0
"""So much older than this process is every failure of an earlier one, whatever the clocks say."""
MARK_CHARACTERS = 16


class FailedQuery(msgspec.Struct, frozen=True):
    """The last failures of one query. Times are monotonic seconds; Unix seconds on the disk."""

    query_id: str
    mark: str
    """Of its name, see ``mark_of``."""
    deaths: tuple[Died, ...] = ()
    unrecovered_deaths: int = 0
    """How many of them came since its last commit or idleness."""
    gone_at: float | None = None
    """When its last run ended; None where it was alive."""


@lru_cache(maxsize=2 * MAX_KEPT)
def mark_of(name: str | None) -> str:
    """What a name is known by on the disk, where a long or secret one has no place."""
    return sha256(name.encode(errors="surrogatepass")).hexdigest()[:MARK_CHARACTERS] if name else ""


def shifted(one: FailedQuery, seconds: float) -> FailedQuery:
    """The same by another clock, which shows so many seconds more."""
    return replace(
        one,
        deaths=tuple(replace(died, at=died.at + seconds) for died in one.deaths),
        gone_at=None if one.gone_at is None else one.gone_at + seconds,
    )


class PastFailures:
    """What earlier processes have kept. Each query of this process is asked for once."""

    def __init__(self) -> None:
        self._kept: dict[str, FailedQuery] = {}
        self._met: set[str] = set()

    @property
    def unmet(self) -> Iterable[FailedQuery]:
        """Those whose query has not been met."""
        return self._kept.values()

    def add(self, kept: Iterable[FailedQuery], *, now: float, wall: float, began_at: float) -> None:
        """Take in what was read at ``now`` and ``wall``, in a process that began at ``began_at``.

        A failure to come is one of just now where the clocks may differ by so much, else it has no
        time that anybody should believe.
        """
        found = [shifted(one, now - wall) for one in kept]
        for one in found[:MAX_KEPT]:
            deaths = _believable(one.deaths, now, began_at - LEAST_AGE_SECONDS)
            unrecovered = min(max(0, one.unrecovered_deaths), len(deaths))
            past = replace(one, deaths=deaths, unrecovered_deaths=unrecovered)
            self._kept[one.query_id] = past
        if found:
            self._met.clear()

    def restored(self, queries: Mapping[str, Query]) -> list[Query]:
        """The queries that have not been asked for, by label, and were known: with their past."""
        if not self._kept:
            return []
        new = [query for label, query in queries.items() if label not in self._met]
        self._met.update(query.label for query in new)
        found = [(query, self._kept.pop(query.query_id, None)) for query in new]
        return [
            _with_past(query, past)
            for query, one in found
            if (past := one or self._namesake(query, queries)) is not None
        ]

    def _namesake(self, query: Query, queries: Mapping[str, Query]) -> FailedQuery | None:
        """Whom it succeeds by its name alone; one that was alive was there last."""
        if not query.name or any(
            one.alive and one.name == query.name and one.label != query.label
            for one in queries.values()
        ):
            return None
        mark = mark_of(query.name)
        bearers = [one for one in self._kept.values() if one.mark == mark]
        last = max(bearers, key=_gone_at, default=None)
        return None if last is None else self._kept.pop(last.query_id)


def _gone_at(one: FailedQuery) -> float:
    return float("inf") if one.gone_at is None else one.gone_at


def _believable(deaths: Iterable[Died], now: float, latest: float) -> tuple[Died, ...]:
    known = [
        replace(died, at=min(died.at, latest))
        for died in deaths
        if -CLOCKS_DIFFER_SECONDS <= now - died.at <= KEEP_SECONDS
    ]
    return tuple(sorted(known, key=lambda died: died.at)[-PAST_DEATHS:])


def _with_past(query: Query, past: FailedQuery) -> Query:
    """The failures of this process are the later ones; a sign of life in it is later, too."""
    is_recovered = query.first_sign_seen or query.totals.commits > 0
    before = 0 if is_recovered else past.unrecovered_deaths
    return replace(
        query,
        deaths=(*past.deaths, *query.deaths)[-PAST_DEATHS:],
        unrecovered_deaths=query.unrecovered_deaths + before,
    )
