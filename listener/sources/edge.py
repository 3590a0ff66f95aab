"""One partition's retention edge, look by look: what is deleted, and what still waits before it.

Kafka deletes whole segments from a partition's beginning, by age or by size, whoever has read
them. The first offset that is still kept is the edge; the run's committed offset runs ahead of
it, or is overtaken. Pure; times are monotonic seconds, unless they are records' own (Unix).
"""

from __future__ import annotations

import msgspec

MAX_POINTS = 16
MAX_MOVES = 8


class EdgePoint(msgspec.Struct, frozen=True):
    """Where the query stood in a partition in which something waited."""

    at: float
    committed: int
    waiting_since: float | None
    """Unix seconds: the time of the first record that waited."""


class Move(msgspec.Struct, frozen=True):
    """The edge was seen to have moved to ``earliest``, by ``leap`` offsets."""

    at: float
    earliest: int
    leap: int


class Edge(msgspec.Struct, frozen=True):
    """The edge, and the query before it.

    ``points`` are the looks since something waits without a break, thinned when many;
    ``moves`` the last moves of the edge. A topic made anew begins anew.
    """

    earliest: int
    points: tuple[EdgePoint, ...] = ()
    moves: tuple[Move, ...] = ()

    def speed(self, now: float) -> float | None:
        """Offsets a second at which the edge moves; None until two moves tell.

        It moves in leaps: one that is overdue slows it down, one that is not does not.
        """
        if len(self.moves) < 2:  # noqa: PLR2004 - a speed has two ends
            return None
        first, last = self.moves[0], self.moves[-1]
        leap = (last.at - first.at) / (len(self.moves) - 1)
        return (last.earliest - first.earliest) / (max(last.at, now - leap) - first.at)


def follow_edge(before: Edge | None, point: EdgePoint, earliest: int, *, waits: bool) -> Edge:
    """Take in where the edge and the query are now, and whether anything waits."""
    news = (point,) if waits else ()
    if before is None or earliest < before.earliest:
        return Edge(earliest, news)
    went_back = before.points and point.committed < before.points[-1].committed
    known = before.points if waits and not went_back else ()
    leap = earliest - before.earliest
    moved = (Move(point.at, earliest, leap),) if leap else ()
    return Edge(earliest, _thinned((*known, *news)), (*before.moves, *moved)[-MAX_MOVES:])


def _thinned(points: tuple[EdgePoint, ...]) -> tuple[EdgePoint, ...]:
    """Every other one of too many: fewer of what is long ago, all of what is recent."""
    return points if len(points) <= MAX_POINTS else (*points[:-1:2], points[-1])
