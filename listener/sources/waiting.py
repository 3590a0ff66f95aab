"""Since when does a partition's first record wait? What to ask for, and what is known. Pure.

Offsets do not tell records: transactions leave markers, aborted ones records that nobody sees,
and compaction takes records away. So the record itself is looked for, in few partitions at a
time, and once for each committed offset.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .report import SourcePoll

MAX_PARTITIONS = 16
"""Looked into at one look."""


class Found(msgspec.Struct, frozen=True):
    """A search from ``committed``: no record before ``offset``; the one there is of ``since``.

    ``since`` is Unix seconds; None where no record has been found yet.
    """

    committed: int
    offset: int
    since: float | None = None


class Search(msgspec.Struct, frozen=True):
    """Look for the first record of a partition at or after ``start``, up to ``end``."""

    partition: str
    committed: int
    start: int
    end: int


def still_true(known: Mapping[str, Found], poll: SourcePoll) -> dict[str, Found]:
    """What has not been overtaken: by the query, by retention, or by a topic made anew."""
    return {
        partition: found
        for partition, found in known.items()
        if partition in poll.latest
        and found.committed <= poll.committed.get(partition, -1) <= found.offset
        and poll.earliest.get(partition, 0) <= found.offset <= poll.latest[partition]
    }


def searches(known: Mapping[str, Found], poll: SourcePoll) -> list[Search]:
    """Where to look now: where most waits, and nothing is known of it."""
    wanted = []
    for partition, committed in poll.committed.items():
        found = known.get(partition, Found(committed, committed))
        if found.since is None:
            start = max(committed, poll.earliest.get(partition, 0), found.offset)
            wanted.append(Search(partition, committed, start, poll.latest.get(partition, 0)))
    wanted = [search for search in wanted if search.start < search.end]
    return sorted(wanted, key=lambda search: search.start - search.end)[:MAX_PARTITIONS]
