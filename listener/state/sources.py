"""What the polls of its sources show of a query: one record for each source.

Times are monotonic seconds, except timestamps of records (Unix).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ..source_polls import OFFSET, SourcePoll, topic_of

T = TypeVar("T", bound=Any)
"""A point with a time ``at``."""


def thinned(points: tuple[T, ...], most: int) -> tuple[T, ...]:
    """At most so many: without every other one if there are more, so that older ones are fewer."""
    return points if len(points) <= most else (*points[:-1:2], points[-1])


def spread(points: tuple[T, ...], most: int) -> tuple[T, ...]:
    """At most so many: without the one whose neighbours are closest, to cover all the time."""
    if len(points) <= most:
        return points
    gaps = [points[place + 1].at - points[place - 1].at for place in range(1, len(points) - 1)]
    place = gaps.index(min(gaps)) + 1
    return (*points[:place], *points[place + 1 :])


# -- retention --------------------------------------------------------------------------------
# The retention edge of a partition: the first offset still kept.
#
# Kafka deletes whole segments from a partition's start, by age or by size, whether they were read
# or not. The run's committed offset stays ahead of the edge or is overtaken by it.


MAX_EDGE_POINTS = 16
MAX_MOVES = 8


class EdgePoint(msgspec.Struct, frozen=True):
    """The query's position in a partition that had unread data."""

    at: float
    committed: int
    waiting_since: float | None
    """Unix seconds: the timestamp of the first unread record."""
    within: int = 0
    """How far it has read into ``committed``."""


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
    gone: str = ""
    """What the query must find to read on, and is deleted."""

    def used_by_time(self, now: float) -> float:
        """Age of the first unread record over the retention time; from 1 on it may be deleted."""
        if self.keeps_seconds is None or self.written_at is None:
            return 0.0
        return (now - self.written_at) / max(self.keeps_seconds, 1e-3)

    def used(self, now: float) -> float:
        """The larger of both, from 0 (nothing is unread) to 1 (at the edge or beyond)."""
        if self.lost or self.gone:
            return 1.0
        return min(1.0, max(0.0, self.used_by_time(now), self.used_by_offsets or 0.0))

    def left_seconds(self, now: float) -> float | None:
        """Seconds until the first unread record may be deleted if the query reads nothing.

        A lower bound, because whole segments are deleted at once; None if unknown.
        """
        if self.lost or self.gone:
            return 0.0
        ends = [] if self.passed_at is None else [self.passed_at]
        if self.keeps_seconds is not None:
            born = now if self.written_at is None else min(now, self.written_at)
            ends.append(born + self.keeps_seconds)
        return max(0.0, min(ends) - now) if ends else None


def _edge(before: Edge | None, poll: SourcePoll, partition: str, lag: int) -> Edge:
    """Add the newest edge and position of a partition with this lag."""
    earliest, committed = poll.earliest[partition], poll.committed[partition]
    if before is None or earliest < before.earliest:
        before = Edge(earliest)
    went_back = before.points and committed < before.points[-1].committed
    since, within = poll.waiting_since.get(partition), poll.within.get(partition, 0)
    point = EdgePoint(poll.at, committed, since, within)
    is_exposed = lag or partition in poll.gone
    points = (*(() if went_back else before.points), point) if is_exposed else ()
    leap = earliest - before.earliest
    moved = (Move(poll.at, earliest, leap),) if leap else ()
    moves = (*before.moves, *moved)[-MAX_MOVES:]
    return Edge(earliest, thinned(points, MAX_EDGE_POINTS), moves)


def _exposure(poll: SourcePoll, partition: str, edge: Edge, waiting: int) -> Exposure | None:
    """The exposure of a partition with ``waiting`` unread offsets; None if unknown."""
    committed, kept = poll.committed[partition], poll.latest[partition] - edge.earliest
    if committed < edge.earliest:
        return Exposure(partition=partition, lost=edge.earliest - committed)
    if partition in poll.gone:
        return Exposure(partition=partition, gone=poll.gone[partition])
    topic, since = topic_of(partition), poll.waiting_since.get(partition)
    keeps = poll.retention_seconds.get(topic) if since is not None or not waiting else None
    # Offsets suffice if the edge moves, and more is retained than one leap deletes. Tables delete
    # by time only.
    by_offsets = poll.unit == OFFSET and bool(edge.moves) and kept > edge.moves[-1].leap
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


# -- shortfall and transactions ---------------------------------------------------------------


class Shortfall(msgspec.Struct, frozen=True):
    """A partition that ended at ``end``, before ``committed``, in ``polls`` polls in a row.

    Its topic or table was recreated or restored. A Delta query idles forever on a table that was
    replaced by one with fewer versions, and skips new data in it (seen on Delta 4.4.0). A hung
    query does not notice a recreated topic.
    """

    since: float
    polls: int
    committed: int
    end: int


class Transaction(msgspec.Struct, frozen=True):
    """The transaction that is open at a partition's last stable offset since ``since``.

    It keeps ``records`` from being read; without any, none is open. ``took`` are the seconds that
    the last ones before it were open.
    """

    since: float
    stable: int
    records: int
    took: tuple[float, ...] = ()


MAX_TOOK = 3


def _shortfalls(before: Mapping[str, Shortfall], poll: SourcePoll) -> dict[str, Shortfall]:
    shortfalls = {}
    for partition, committed in poll.committed.items():
        end = poll.latest.get(partition, committed)
        if end < committed:
            earlier = before.get(partition, Shortfall(poll.at, 0, committed, end))
            shortfalls[partition] = Shortfall(earlier.since, earlier.polls + 1, committed, end)
    return shortfalls


def _transaction(before: Transaction | None, poll: SourcePoll, partition: str) -> Transaction:
    end = poll.log_end[partition]
    stable = poll.latest.get(partition, end)
    now = Transaction(poll.at, stable, max(0, end - stable))
    if before is None:
        return now
    if not before.records:
        return replace(now, took=before.took)
    if now.records and stable == before.stable:
        return replace(now, since=before.since, took=before.took)
    return replace(now, took=(*before.took, poll.at - before.since)[-MAX_TOOK:])


# -- backlog ----------------------------------------------------------------------------------
# For how long the first record has been unread, as far as that is certain.
#
# A record's timestamp comes from its producer: it is old in a replayed log, and in the future if a
# clock is wrong. So it counts only between the two polls that bracket the record: the earlier one
# saw the partition end before it, the later one after it.


MAX_MARKS = 16


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A partition's end, and when it was first seen there."""

    at: float
    end: int


class Backlog(msgspec.Struct, frozen=True):
    """The ends of a partition seen beyond ``first``, the first unread offset.

    The first of ``marks`` may be the last end that was not beyond it.
    """

    first: int
    marks: tuple[Mark, ...]

    @property
    def has_beginning(self) -> bool:
        """Whether its first record arrived while we polled."""
        return self.marks[0].end <= self.first

    def unread_since(self, written_at: float) -> float:
        """Since when, at the latest, its first record is unread; by its timestamp if plausible."""
        after = next(mark.at for mark in self.marks if mark.end > self.first)
        is_plausible = self.has_beginning and self.marks[0].at <= written_at <= after
        return written_at if is_plausible else after


def _backlog(before: Backlog | None, now: Mark, first: int) -> Backlog:
    """Add only an end further on; start over for a recreated topic or a rewound query."""
    marks = before.marks if before is not None and first >= before.first else ()
    if marks and now.end < marks[-1].end:
        marks = ()
    if not marks or now.end > marks[-1].end:
        marks = (*marks, now)
    while len(marks) > 1 and marks[1].end <= first:
        marks = marks[1:]
    return Backlog(first, spread(marks, MAX_MARKS))


# -- source -----------------------------------------------------------------------------------


class PolledSource(msgspec.Struct, frozen=True):
    """One source of a query, and its partitions.

    ``edges`` are kept over all runs of a checkpoint, the rest is that of the current one;
    ``exposures`` holds only partitions that the last poll covers, ``shortfalls`` those that end
    before the query's position, ``backlogs`` those with unread data.
    """

    description: str
    poll: SourcePoll | None = None
    """The last answer for the current run."""
    edges: dict[str, Edge] = {}
    exposures: dict[str, Exposure] = {}
    shortfalls: dict[str, Shortfall] = {}
    transactions: dict[str, Transaction] = {}
    backlogs: dict[str, Backlog] = {}
    gone_since: float | None = None
    """The first of the last polls in a row that did not find its folder."""


def follow_source(source: PolledSource | None, poll: SourcePoll) -> PolledSource:
    """Apply a poll of a source; a repeated one changes nothing."""
    if source is None or source.description != poll.description:
        source = PolledSource(poll.description)
    if source.poll is not None and poll.at <= source.poll.at:
        return source
    lags, edges = poll.lag_by_partition, dict[str, Edge]()
    exposures: dict[str, Exposure] = {}
    for partition in poll.committed:
        edge, lag = source.edges.get(partition), lags.get(partition)
        if partition in poll.earliest and lag is not None:
            edge = _edge(edge, poll, partition, lag)
            exposure = _exposure(poll, partition, edge, lag)
            exposures |= {} if exposure is None else {partition: exposure}
        # An edge that is unknown in this poll is the last known one.
        edges |= {} if edge is None else {partition: edge}
    gone_since = poll.at if source.gone_since is None else source.gone_since
    return PolledSource(
        poll.description,
        poll,
        edges,
        exposures,
        _shortfalls(source.shortfalls, poll),
        {name: _transaction(source.transactions.get(name), poll, name) for name in poll.log_end},
        {
            partition: _backlog(source.backlogs.get(partition), Mark(poll.at, end), end - lag)
            for partition, lag in lags.items()
            if lag and (end := poll.latest[partition])
        },
        gone_since if poll.missing_folder else None,
    )


def between_runs(sources: Mapping[int, PolledSource]) -> dict[int, PolledSource]:
    """What is known of the sources of a checkpoint before a run of it was polled."""
    return {
        index: PolledSource(source.description, edges=source.edges)
        for index, source in sources.items()
        if source.edges
    }
