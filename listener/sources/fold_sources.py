"""One query, what its sources say -> that query afterwards. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ..query import Query
from ..trends import follow_looks
from .report import SourceLook
from .retention import follow_edges
from .shortfall import follow_shortfalls
from .unread import follow_unread


def fold_sources(query: Query, looks: Mapping[int, SourceLook], trouble: str) -> Query:
    """Take in what is known of the sources of the query's present run."""
    if looks == query.looks:
        return query if trouble == query.source_trouble else replace(query, source_trouble=trouble)
    return replace(
        query,
        looks=dict(looks),
        source_trouble=trouble,
        trends=follow_looks(query.trends, query.looks, looks),
        retention=follow_edges(query.retention, looks),
        shortfalls=follow_shortfalls(query.shortfalls, looks),
        unread=follow_unread(query.unread, looks),
    )
