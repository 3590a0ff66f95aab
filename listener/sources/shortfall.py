"""Sources that end before what a query has read of them: made anew, or copied back. Pure.

Delta idles for ever on a table that was replaced by one with fewer versions, and skips what is
written to it (seen on Delta 4.4.0); a hung query does not notice a topic that was made anew.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .report import SourceLook


class Shortfall(msgspec.Struct, frozen=True):
    """A partition that has ended at ``end``, before ``committed``, in ``looks`` looks in a row."""

    since: float
    looks: int
    committed: int
    end: int
    looked_at: float


Shortfalls = dict[int, dict[str, Shortfall]]
"""By the source's index and the partition."""


def follow_shortfalls(known: Shortfalls, looks: Mapping[int, SourceLook]) -> Shortfalls:
    """Take in the newest look at each source; the same look counts once."""
    found = {
        index: {
            partition: _follow(known.get(index, {}).get(partition), look, partition)
            for partition, committed in look.committed.items()
            if look.latest.get(partition, committed) < committed
        }
        for index, look in looks.items()
    }
    return {index: partitions for index, partitions in found.items() if partitions}


def _follow(known: Shortfall | None, look: SourceLook, partition: str) -> Shortfall:
    committed, end = look.committed[partition], look.latest[partition]
    if known is None:
        return Shortfall(look.at, 1, committed, end, look.at)
    looks = known.looks + (look.at > known.looked_at)
    return Shortfall(known.since, looks, committed, end, look.at)
