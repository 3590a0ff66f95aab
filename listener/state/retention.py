"""Follows the retention edge of every partition of a run's sources: the first offset still kept.

Kafka deletes whole segments from a partition's start, by age or by size, whether they were read or
not. The run's committed offset stays ahead of the edge or is overtaken by it. Times are monotonic
seconds, except timestamps of records (Unix).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from ..source_polls import SourcePoll, thinned, topic_of

MAX_POINTS = 16
MAX_MOVES = 8


class EdgePoint(msgspec.Struct, frozen=True):
    """The query's position in a partition that had unread data."""

    at: float
    committed: int
    waiting_since: float | None
    """Unix seconds: the timestamp of the first unread record."""


class Move(msgspec.Struct, frozen=True):
    """The edge moved to ``earliest``, by ``leap`` offsets."""

    at: float
    earliest: int
    leap: int


class Edge(msgspec.Struct, frozen=True):
    """The edge, and the query's positions ahead of it.

    ``points`` are the polls since data has been unread without a break, thinned when many;
    ``moves`` the last moves of the edge. A recreated topic starts over.
    """

    earliest: int
    points: tuple[EdgePoint, ...] = ()
    moves: tuple[Move, ...] = ()

    def speed(self, now: float) -> float | None:
        """Offsets per second at which the edge moves; None before two moves.

        The edge moves in leaps. An overdue leap lowers the speed.
        """
        if len(self.moves) < 2:  # noqa: PLR2004 - a speed has two ends
            return None
        first, last = self.moves[0], self.moves[-1]
        leap = (last.at - first.at) / (len(self.moves) - 1)
        return (last.earliest - first.earliest) / (max(last.at, now - leap) - first.at)


def follow_edge(before: Edge | None, point: EdgePoint, earliest: int, *, waits: bool) -> Edge:
    """Apply the newest edge and position, and whether data is unread."""
    if before is None or earliest < before.earliest:
        before = Edge(earliest)
    went_back = before.points and point.committed < before.points[-1].committed
    points = (*(() if went_back else before.points), point) if waits else ()
    leap = earliest - before.earliest
    moved = (Move(point.at, earliest, leap),) if leap else ()
    return Edge(earliest, thinned(points, MAX_POINTS), (*before.moves, *moved)[-MAX_MOVES:])


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the retention a partition's backlog has used, and how long it is safe.

    By time if only time limits retention: the age of the first unread record, which grows after the
    poll, against ``retention.ms``. By offsets if size may limit it, or if the limit is unknown: the
    unread offsets against all retained ones, once the edge has moved.
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
    # Offsets suffice if the edge moves, and more is retained than one leap deletes.
    by_offsets = bool(edge.moves) and kept > edge.moves[-1].leap
    by_offsets = by_offsets and (keeps is None or topic in poll.bounded_by_size)
    speed = edge.speed(poll.at) if by_offsets and waiting else None
    if keeps is None and not by_offsets:
        return None
    return Exposure(
        partition=partition,
        keeps_seconds=keeps,
        written_at=since - poll.wall + poll.at if since is not None and waiting else None,
        used_by_offsets=waiting / kept if by_offsets else None,
        passed_at=edge.moves[-1].at + (committed - edge.earliest) / speed if speed else None,
    )


class SourceEdges(msgspec.Struct, frozen=True):
    """One source's partitions, named as in ``offsets.py``, as of the poll at ``at`` (monotonic).

    ``exposures`` holds only partitions that this poll covers.
    """

    description: str
    at: float
    edges: dict[str, Edge] = {}
    exposures: dict[str, Exposure] = {}


def follow_edges(
    sources: Mapping[int, SourceEdges], polls: Mapping[int, SourcePoll]
) -> dict[int, SourceEdges]:
    """Apply one poll of each of a run's sources, by index; a repeated poll changes nothing."""
    followed = {index: _follow_poll(sources.get(index), poll) for index, poll in polls.items()}
    return {**sources, **followed}


def _follow_poll(source: SourceEdges | None, poll: SourcePoll) -> SourceEdges:
    if source is None or source.description != poll.description:
        source = SourceEdges(poll.description, -math.inf)
    if poll.at <= source.at:
        return source
    lags = poll.lag_by_partition
    edges: dict[str, Edge] = {}
    exposures: dict[str, Exposure] = {}
    for partition, committed in poll.committed.items():
        before, earliest = source.edges.get(partition), poll.earliest.get(partition)
        if earliest is None or partition not in lags:
            # Unknown in this poll: keep the last known edge.
            edges |= {} if before is None else {partition: before}
            continue
        point = EdgePoint(poll.at, committed, poll.waiting_since.get(partition))
        edge = follow_edge(before, point, earliest, waits=lags[partition] > 0)
        edges[partition] = edge
        exposure = exposure_of(poll, partition, edge, lags[partition])
        exposures |= {} if exposure is None else {partition: exposure}
    return SourceEdges(poll.description, poll.at, edges, exposures)
