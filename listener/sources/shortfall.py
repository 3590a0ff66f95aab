"""Detects sources that end before the query's offsets: recreated or restored ones. Pure.

A Delta query idles forever on a table that was replaced by one with fewer versions, and skips new
data in it (seen on Delta 4.4.0). A hung query does not notice a recreated topic.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .report import SourcePoll


class Shortfall(msgspec.Struct, frozen=True):
    """A partition that ended at ``end``, before ``committed``, in ``polls`` polls in a row."""

    since: float
    polls: int
    committed: int
    end: int
    polled_at: float


Shortfalls = dict[int, dict[str, Shortfall]]
"""By source index and partition."""


def follow_shortfalls(known: Shortfalls, polls: Mapping[int, SourcePoll]) -> Shortfalls:
    """Apply the newest poll of each source; a repeated poll counts once."""
    found = {
        index: {
            partition: _follow(known.get(index, {}).get(partition), poll, partition)
            for partition, committed in poll.committed.items()
            if poll.latest.get(partition, committed) < committed
        }
        for index, poll in polls.items()
    }
    return {index: partitions for index, partitions in found.items() if partitions}


def _follow(known: Shortfall | None, poll: SourcePoll, partition: str) -> Shortfall:
    committed, end = poll.committed[partition], poll.latest[partition]
    if known is None:
        return Shortfall(poll.at, 1, committed, end, poll.at)
    polls = known.polls + (poll.at > known.polled_at)
    return Shortfall(known.since, polls, committed, end, poll.at)
