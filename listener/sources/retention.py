"""Follows the retention edge of every partition of a run's sources. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from .edge import Edge, EdgePoint, follow_edge
from .exposure import Exposure, exposure_of
from .report import SourcePoll


class SourceEdges(msgspec.Struct, frozen=True):
    """One source's partitions, named as in ``offsets.py``, as of the poll at ``at`` (monotonic).

    ``exposures`` holds only partitions that this poll covers.
    """

    description: str
    at: float
    edges: dict[str, Edge] = {}
    exposures: dict[str, Exposure] = {}


def follow_edges(
    known: Mapping[int, SourceEdges], polls: Mapping[int, SourcePoll]
) -> dict[int, SourceEdges]:
    """Apply one poll of each of a run's sources, by index; a repeated poll changes nothing."""
    followed = {index: _follow_poll(known.get(index), poll) for index, poll in polls.items()}
    return {**known, **followed}


def _follow_poll(known: SourceEdges | None, poll: SourcePoll) -> SourceEdges:
    if known is None or known.description != poll.description:
        known = SourceEdges(poll.description, -math.inf)
    if poll.at <= known.at:
        return known
    lags = poll.lag_by_partition
    edges: dict[str, Edge] = {}
    exposures: dict[str, Exposure] = {}
    for partition, committed in poll.committed.items():
        before, earliest = known.edges.get(partition), poll.earliest.get(partition)
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
