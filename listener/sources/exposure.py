"""How much of the retention a partition's backlog has used, and how long it is safe. Pure.

By time if only time limits retention: the age of the first unread record against
``retention.ms``. By offsets if size may limit it, or if the limit is unknown: the unread offsets
against all retained offsets, once the edge has moved. Times are monotonic seconds.
"""

from __future__ import annotations

import msgspec

from .edge import Edge
from .report import SourcePoll, topic_of


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
    """One partition and its source's retention edge, as of one poll.

    Records continue to age after the poll.
    """

    partition: str
    keeps_seconds: float | None = None
    """The retention time, if retention is measured by time."""
    written_at: float | None = None
    """When the first unread record was written."""
    used_by_offsets: float | None = None
    """Unread over retained offsets, if measured by offsets; 1 means the edge is reached."""
    passed_at: float | None = None
    """When the edge reaches the committed offset, at its current speed."""
    lost: int = 0
    """Offsets that were deleted before the query read them."""

    def used_by_time(self, now: float) -> float:
        """Age of the first unread record over the retention time; from 1 on it may be deleted."""
        if self.keeps_seconds is None or self.written_at is None:
            return 0.0
        return (now - self.written_at) / max(self.keeps_seconds, 1e-3)

    def used(self, now: float) -> float:
        """The larger of both, from 0 (nothing is unread) to 1 (at the edge or beyond)."""
        if self.lost:
            return 1.0
        return min(1.0, max(0.0, self.used_by_time(now), self.used_by_offsets or 0.0))

    def left_seconds(self, now: float) -> float | None:
        """Seconds until the first unread record may be deleted if the query reads nothing.

        A lower bound, because whole segments are deleted at once; None if unknown.
        """
        if self.lost:
            return 0.0
        ends = [] if self.passed_at is None else [self.passed_at]
        if self.keeps_seconds is not None:
            born = now if self.written_at is None else min(now, self.written_at)
            ends.append(born + self.keeps_seconds)
        return max(0.0, min(ends) - now) if ends else None


def exposure_of(poll: SourcePoll, partition: str, edge: Edge, waiting: int) -> Exposure | None:
    """The exposure of a partition with ``waiting`` unread offsets; None if unknown."""
    committed, kept = poll.committed[partition], poll.latest[partition] - edge.earliest
    if committed < edge.earliest:
        return Exposure(partition=partition, lost=edge.earliest - committed)
    topic, since = topic_of(partition), poll.waiting_since.get(partition)
    keeps = poll.retention_seconds.get(topic) if since is not None or not waiting else None
    by_offsets = _offsets_suffice(edge, kept) and (keeps is None or topic in poll.bounded_by_size)
    if keeps is None and not by_offsets:
        return None
    return Exposure(
        partition=partition,
        keeps_seconds=keeps,
        written_at=since - poll.wall + poll.at if since is not None and waiting else None,
        used_by_offsets=waiting / kept if by_offsets else None,
        passed_at=_passed_at(edge, committed, poll.at) if by_offsets and waiting else None,
    )


def _offsets_suffice(edge: Edge, kept: int) -> bool:
    """Whether the edge moves, and more is retained than one leap deletes."""
    return bool(edge.moves) and kept > edge.moves[-1].leap


def _passed_at(edge: Edge, committed: int, now: float) -> float | None:
    speed = edge.speed(now)
    return edge.moves[-1].at + (committed - edge.earliest) / speed if speed else None
