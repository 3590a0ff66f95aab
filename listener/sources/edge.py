"""Follows one partition's retention edge, the first offset that is still kept. Pure.

Kafka deletes whole segments from a partition's start, by age or by size, whether they were read
or not. The run's committed offset stays ahead of the edge or is overtaken by it. Times are
monotonic seconds, except timestamps of records (Unix).
"""

from __future__ import annotations

import msgspec

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
    new = (point,) if waits else ()
    if before is None or earliest < before.earliest:
        return Edge(earliest, new)
    went_back = before.points and point.committed < before.points[-1].committed
    known = before.points if waits and not went_back else ()
    leap = earliest - before.earliest
    moved = (Move(point.at, earliest, leap),) if leap else ()
    return Edge(earliest, _thinned((*known, *new)), (*before.moves, *moved)[-MAX_MOVES:])


def _thinned(points: tuple[EdgePoint, ...]) -> tuple[EdgePoint, ...]:
    """Drop every other point when there are too many: older points become fewer."""
    return points if len(points) <= MAX_POINTS else (*points[:-1:2], points[-1])
