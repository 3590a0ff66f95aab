"""Plans the searches for each partition's first unread record, and keeps the results. Pure.

Not every offset holds a record: transactions leave markers, aborted transactions leave invisible
records, and compaction removes records. So the record itself is searched for, in a few partitions
at a time, once for each committed offset.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .report import SourcePoll

MAX_PARTITIONS = 16
"""How many partitions are searched in one poll."""


class Found(msgspec.Struct, frozen=True):
    """A search from ``committed``: no record before ``offset``; the record there is of ``since``.

    ``since`` is Unix seconds; None if no record has been found yet.
    """

    committed: int
    offset: int
    since: float | None = None


class Search(msgspec.Struct, frozen=True):
    """A search for a partition's first record at or after ``start``, up to ``end``."""

    partition: str
    committed: int
    start: int
    end: int


def still_true(known: Mapping[str, Found], poll: SourcePoll) -> dict[str, Found]:
    """The results still valid: not passed by the query, not deleted, the topic not recreated."""
    return {
        partition: found
        for partition, found in known.items()
        if partition in poll.latest
        and found.committed <= poll.committed.get(partition, -1) <= found.offset
        and poll.earliest.get(partition, 0) <= found.offset <= poll.latest[partition]
    }


def searches(known: Mapping[str, Found], poll: SourcePoll) -> list[Search]:
    """The searches to make now: partitions without a result, the most unread offsets first."""
    wanted = []
    for partition, committed in poll.committed.items():
        found = known.get(partition, Found(committed, committed))
        if found.since is None:
            start = max(committed, poll.earliest.get(partition, 0), found.offset)
            wanted.append(Search(partition, committed, start, poll.latest.get(partition, 0)))
    wanted = [search for search in wanted if search.start < search.end]
    return sorted(wanted, key=lambda search: search.start - search.end)[:MAX_PARTITIONS]
