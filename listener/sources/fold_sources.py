"""Applies the polls of a query's sources to the query. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ..query import Query
from ..trends import follow_polls
from .report import SourcePoll
from .retention import follow_edges
from .shortfall import follow_shortfalls
from .unread import follow_unread


def fold_sources(query: Query, polls: Mapping[int, SourcePoll], trouble: str) -> Query:
    """Apply the newest polls of the sources of the query's current run."""
    if polls == query.polls:
        return query if trouble == query.source_trouble else replace(query, source_trouble=trouble)
    return replace(
        query,
        polls=dict(polls),
        source_trouble=trouble,
        trends=follow_polls(query.trends, query.polls, polls),
        retention=follow_edges(query.retention, polls),
        shortfalls=follow_shortfalls(query.shortfalls, polls),
        unread=follow_unread(query.unread, polls),
    )
