"""Which queries are let go of, so that memory is bounded. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .identity import UNNAMED
from .query import Outcome, Query

KEEP_COMPLETED_SECONDS = 15 * 60.0
MAX_GONE_QUERIES = 1000
MAX_GONE_UNNAMED = 20
"""Each restart of a query without a name and a checkpoint leaves another of them behind."""


def to_forget(queries: Iterable[Query], now: float, expected: Collection[str]) -> list[Query]:
    """Those that completed a while ago, and the oldest of too many that are gone.

    A dead query is not forgotten by time: no alert resolves that nobody has fixed. An expected
    one is never forgotten.
    """
    gone = [one for one in queries if one.gone_at is not None and one.name not in expected]
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


def is_called(query: Query, name: str) -> bool:
    """Whether a person who says ``name`` means this query."""
    return name in (query.name, query.label) or (name == UNNAMED and query.is_unnamed)


def _worth(query: Query) -> int:
    """What has failed is forgotten last: somebody may not have fixed it yet."""
    if query.failure is not None:
        return 2
    return 0 if _completed(query) or query.stop_expected else 1


def _completed(query: Query) -> bool:
    return query.ended is not None and query.ended.outcome is Outcome.COMPLETED


def _is_old(query: Query, now: float) -> bool:
    return query.gone_at is not None and now - query.gone_at > KEEP_COMPLETED_SECONDS
