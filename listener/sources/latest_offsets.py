"""What a source has, from whoever was asked, where Spark does not tell it. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from ..events import Progress, SourceProgress
from ..offsets import WHOLE
from ..query import Query
from .report import SourcePoll


def with_latest(progress: Progress, query: Query) -> Progress:
    """A batch whose sources tell what they have, as it was at the last look before its end.

    A trigger that ends by itself reads up to what there was at its start (``availableNow``):
    what has come since does not wait for it.
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
    # A table's version, before its first file: beyond all that earlier versions hold.
    latest = {key: (newest, -1) for key, end in source.end.items() if isinstance(end, tuple)}
    return replace(source, latest=dict(latest)) if latest else source
