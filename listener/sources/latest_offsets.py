"""Adds a source's latest offsets from a poll when Spark does not report them. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from ..events import Progress, SourceProgress
from ..offsets import WHOLE
from ..query import Query
from .report import SourcePoll


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
