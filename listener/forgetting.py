"""Which queries are forgotten, so that memory stays bounded. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .labels import UNNAMED
from .query import Outcome, Query

KEEP_COMPLETED_SECONDS = 15 * 60.0
MAX_GONE_QUERIES = 1000
MAX_GONE_UNNAMED = 20
"""Each restart of a query without a name and a checkpoint leaves one more of them."""
MAX_BEFORE_FORGETTING = 2000
FORGET_EVERY = 100


def to_forget(
    queries: Iterable[Query],
    now: float,
    expected: Collection[str],
    supervised: Collection[str] = (),
) -> list[Query]:
    """Queries that completed some time ago, and the oldest ones above the limit of ended queries.

    A failed query is not forgotten by age, so its alert does not resolve before somebody fixes
    it. Neither an expected query (by name) nor a supervised one (by label) is ever forgotten.
    """
    gone = [
        one
        for one in queries
        if one.gone_at is not None and one.name not in expected and one.label not in supervised
    ]
    gone.sort(key=lambda query: (_worth(query), query.gone_at))
    unnamed = [query for query in gone if query.is_unnamed]
    surplus = {query.label for query in unnamed[: max(0, len(unnamed) - MAX_GONE_UNNAMED)]}
    named = [query for query in gone if query.label not in surplus]
    surplus |= {query.label for query in named[: max(0, len(named) - MAX_GONE_QUERIES)]}
    return [
        query
        for query in gone
        if query.label in surplus or (_completed(query) and _is_old(query, now))
    ]


def is_crowded(count: int) -> bool:
    """Whether to forget queries now, at each hundredth above 2,000, and not only once a minute."""
    return count > MAX_BEFORE_FORGETTING and count % FORGET_EVERY == 0


def is_called(query: Query, name: str) -> bool:
    """Whether ``name`` refers to this query."""
    return name in (query.name, query.label) or (name == UNNAMED and query.is_unnamed)


def _worth(query: Query) -> int:
    """Rank for forgetting; what nobody may have fixed yet comes last: failures and sudden stops."""
    if query.failure is not None:
        return 2
    if _completed(query) or query.stop_expected:
        return 0
    return 1 if query.is_unnamed else 2


def _completed(query: Query) -> bool:
    return query.ended is not None and query.ended.outcome is Outcome.COMPLETED


def _is_old(query: Query, now: float) -> bool:
    return query.gone_at is not None and now - query.gone_at > KEEP_COMPLETED_SECONDS
