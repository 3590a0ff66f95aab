"""Applies the polls of a query's sources to the query and to its batches. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ..events import Progress, SourceProgress
from ..offsets import WHOLE
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


def with_latest(progress: Progress, query: Query) -> Progress:
    """A batch with the latest offsets of its sources, as of the last poll before it ended.

    A trigger that ends by itself reads only the data present at its start (``availableNow``), so
    later data does not count as unread.
    """
    if not query.polls or (query.facts is not None and query.facts.trigger.ends_by_itself):
        return progress
    sources = tuple(
        _with_latest(source, query.polls.get(index))
        for index, source in enumerate(progress.sources)
    )
    return replace(progress, sources=sources)


def _with_latest(source: SourceProgress, poll: SourcePoll | None) -> SourceProgress:
    if source.latest is not None or poll is None or not isinstance(source.end, dict):
        return source
    newest = poll.latest.get(WHOLE)
    if newest is None:
        return source
    # The version before its first file is beyond everything in earlier versions.
    latest = {key: (newest, -1) for key, end in source.end.items() if isinstance(end, tuple)}
    return replace(source, latest=dict(latest)) if latest else source
