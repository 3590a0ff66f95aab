"""Sources that end before what a query has read of them: made anew, or copied back. Pure.

Delta idles for ever on a table that was replaced by one with fewer versions, and skips what is
written to it (seen on Delta 4.4.0); a hung query does not notice a topic that was made anew.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .report import SourcePoll


class Shortfall(msgspec.Struct, frozen=True):
    """A partition that has ended at ``end``, before ``committed``, in ``polls`` looks in a row."""

    since: float
    polls: int
    committed: int
    end: int
    polled_at: float


Shortfalls = dict[int, dict[str, Shortfall]]
"""By the source's index and the partition."""


def follow_shortfalls(known: Shortfalls, polls: Mapping[int, SourcePoll]) -> Shortfalls:
    """Take in the newest look at each source; the same look counts once."""
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
