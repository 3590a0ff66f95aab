"""How much of its retention a partition's backlog has used up, and for how long it is safe. Pure.

By time where time alone decides: the age of the first waiting record against ``retention.ms``. By
offsets where size may decide, or where nobody knows what does: what waits against all that is
kept, once the edge has been seen to move.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .retention import Edge, SourceEdges
from .source_report import SourceLook, topic_of


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
    """One partition before its source's retention edge."""

    partition: str
    used_by_time: float | None = None
    """Age of the first waiting record over the retention time; from 1 on it may be deleted."""
    used_by_offsets: float | None = None
    """What waits over what is kept; at 1 the edge is there."""
    left_seconds: float | None = None
    """How long until the first waiting record is deleted if the query reads nothing: at least,
    for whole segments are deleted at once."""
    lost: int = 0
    """Offsets that were deleted before the query had read them."""

    @property
    def used(self) -> float:
        """The worse of both, from 0 (nothing waits) to 1 (at the edge, or beyond)."""
        if self.lost:
            return 1.0
        return min(1.0, max(self.used_by_time or 0.0, self.used_by_offsets or 0.0))


def exposures(look: SourceLook, known: SourceEdges, now: float) -> Iterator[Exposure]:
    """All partitions of a source of which anything can be said at ``now`` (monotonic seconds).

    A record that waits grows old after the look too.
    """
    lags, wall = look.lag_by_partition, look.wall + now - look.at
    for partition, edge in known.edges.items():
        committed, end = look.committed.get(partition), look.latest.get(partition)
        if committed is None or end is None or partition not in lags:
            continue
        if committed < edge.earliest:
            lost = edge.earliest - committed
            yield Exposure(partition=partition, left_seconds=0.0, lost=lost)
            continue
        waiting, kept = lags[partition], end - edge.earliest
        by_time = _by_time(look, partition, waiting, wall)
        by_offsets = _offsets_tell(edge, kept) and (
            by_time is None or topic_of(partition) in look.bounded_by_size
        )
        if by_time is not None or by_offsets:
            yield Exposure(
                partition=partition,
                used_by_time=by_time[0] if by_time is not None else None,
                used_by_offsets=waiting / kept if by_offsets else None,
                left_seconds=_least(
                    by_time[1] if by_time is not None else None,
                    _until_the_edge(edge, committed, now) if by_offsets and waiting else None,
                ),
            )


def _by_time(
    look: SourceLook, partition: str, waiting: int, wall: float
) -> tuple[float, float] | None:
    """The share of the retention time that is used, and the seconds left."""
    keeps = look.retention_seconds.get(topic_of(partition))
    since = look.waiting_since.get(partition, wall if not waiting else None)
    if keeps is None or since is None:
        return None
    age = max(0.0, wall - since) if waiting else 0.0
    return age / max(keeps, 1e-3), max(0.0, keeps - age)


def _offsets_tell(edge: Edge, kept: int) -> bool:
    """Whether the edge moves, and more is kept than goes at once: else all that is new is old."""
    return bool(edge.moves) and kept > edge.moves[-1].leap


def _until_the_edge(edge: Edge, committed: int, now: float) -> float | None:
    speed = edge.speed(now)
    if not speed:
        return None
    return max(0.0, (committed - edge.earliest) / speed - (now - edge.moves[-1].at))


def _least(*seconds: float | None) -> float | None:
    return min((one for one in seconds if one is not None), default=None)
