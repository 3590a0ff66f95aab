"""What has arrived at a source, and what the query has read of it: two rising lines.

``catching_up.py`` reads from them when they meet. Traffic has a rhythm, so arrivals are also kept
by quarter of an hour, for a day and six hours: half a kilobyte for each source. Pure; times are
monotonic seconds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import inf

import msgspec
from msgspec.structs import replace

from ..events import SourceProgress
from ..offsets import whole
from ..source_polls import OFFSET
from ..state.sources import PolledSource, thinned

MAX_MARKS = 24
QUARTER_SECONDS = 900.0
DAY_QUARTERS = 96
KEPT_QUARTERS = DAY_QUARTERS + 24
SAMPLE_SECONDS = 5.0
"""Between two samples, a batch costs next to nothing."""
LONG_GAP = 4.0
"""After so many times the usual time between two commits, a query was hung or down."""
MIN_GAPS = 2
MOST = 1e18
"""More is unread nowhere; a source may report any number."""
SECONDS = "s"
"""The unit of a source that reports how late it is: a second of data arrives each second."""

Extent = tuple[int, float]
NO_EXTENT: Extent = (0, 0)
Ends = list[tuple[float, float]]
"""Times, and how much had arrived by then; ascending."""


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A commit: when it was, and how much the query had ``read`` by then.

    ``end`` had arrived by the poll after it. ``is_close``: the query had caught up.
    """

    at: float
    read: float
    polled_at: float
    end: float
    is_close: bool = False


class Intake(msgspec.Struct, frozen=True, gc=False):
    """The arrivals at one source and the commits of the query, in its ``unit``.

    ``end`` counts the arrivals up to ``at``, of which ``lag`` are unread; ``since`` then there was
    no long time without a poll. ``marks`` are the commits
    since the query fell behind, thinned. ``quarters`` are the arrivals in each quarter of an hour
    before ``quarter``, as 32-bit floats; ``quarter_end`` had arrived by its beginning, or None in
    the first one.
    """

    unit: str
    at: float
    end: float
    lag: float
    since: float
    marks: tuple[Mark, ...] = ()
    quarters: bytes = b""
    quarter: int = 0
    quarter_end: float | None = None
    extent: Extent = NO_EXTENT
    """How many partitions the source had then, and the sum of their ends; none if unknown."""

    @property
    def read(self) -> float:
        """How much the query has read of all arrivals."""
        return self.end - self.lag

    @property
    def by_quarter(self) -> Sequence[float]:
        """Arrivals by quarter of an hour, the newest last; at most ``KEPT_QUARTERS``."""
        return array("f", self.quarters)

    @property
    def arrivals(self) -> Ends:
        """All that is known of how much had arrived when."""
        ends: Ends = []
        if self.quarter_end is not None:
            end, at = self.quarter_end, self.quarter * QUARTER_SECONDS
            ends.append((at, end))
            for arrived in reversed(self.by_quarter):
                end -= arrived
                at -= QUARTER_SECONDS
                ends.append((at, end))
        ends += [(mark.polled_at, mark.end) for mark in self.marks]
        return sorted([*ends, (self.at, self.end)])


class Pace(msgspec.Struct, frozen=True, gc=False):
    """The newest commit of a query, and the pace of its batches, in seconds.

    A batch takes ``batch``, or so long is the trigger interval. Once all that is unread may have
    arrived in the last ``close`` seconds, the query has caught up.
    """

    committed_at: float
    batch: float
    close: float


def follow_intake(
    before: Intake | None,
    unit: str,
    at: float,
    *,
    arrived: float,
    lag: float,
    pace: Pace,
    extent: Extent = NO_EXTENT,
) -> Intake:
    """Apply a poll: so much has ``arrived`` since the one before, and ``lag`` is unread."""
    if before is None or before.unit != unit:
        marks = (Mark(at, 0.0, at, lag),)
        quarter = int(at // QUARTER_SECONDS)
        return Intake(unit, at, lag, lag, at, marks, quarter=quarter, extent=extent)
    if at <= before.at:
        return before
    since = at if at - before.at > QUARTER_SECONDS else before.since
    after = replace(before, at=at, end=before.end + arrived, lag=lag, since=since, extent=extent)
    if at >= (before.quarter + 1) * QUARTER_SECONDS:
        after = _with_quarters(after, before)
    last = before.marks[-1] if before.marks else None
    if last is None or after.read < last.read:
        # The first poll of a run, a rewound query, or another set of partitions.
        return replace(after, marks=(Mark(at, after.read, at, after.end),))
    if after.read == last.read:
        return after
    return replace(after, marks=_marked(after, last, pace))


def follow_polled(
    intakes: Mapping[int, Intake], polled: Mapping[int, PolledSource], pace: Pace
) -> dict[int, Intake]:
    """Apply the polls of the sources of a query."""
    followed = dict(intakes)
    for index, source in polled.items():
        poll = source.poll
        lag = None if poll is None else poll.lag_offsets
        if poll is None or lag is None:
            continue
        before = intakes.get(index)
        extent = len(poll.latest), sum(poll.latest.values())
        arrived = _arrived(before, extent, 0.0)
        followed[index] = follow_intake(
            before, poll.unit, poll.at, arrived=arrived, lag=lag, pace=pace, extent=extent
        )
    return followed


def follow_reported(
    intakes: Mapping[int, Intake], sources: Mapping[int, SourceProgress], at: float, pace: Pace
) -> dict[int, Intake]:
    """Apply what Spark reported of sources that are not polled, in the most exact unit.

    Seconds arrive as time passes. Of bytes and files it is not reported what arrives meanwhile:
    only that the backlog shrinks is known.
    """
    followed = dict(intakes)
    for index, source in sources.items():
        reported = lag_of(source)
        if reported is None:
            continue
        unit, lag = reported
        before = intakes.get(index)
        extent = NO_EXTENT
        arrived = 0.0
        if unit == SECONDS and before is not None:
            arrived = at - before.at
        elif unit == OFFSET:
            extent = _extent(source, lag)
            arrived = _arrived(before, extent, source.input_rows + lag)
        followed[index] = follow_intake(
            before, unit, at, arrived=arrived, lag=lag, pace=pace, extent=extent
        )
    return followed


def lag_of(source: SourceProgress) -> tuple[str, float] | None:
    """How far behind Spark reports a source to be, in the most exact unit; None if it does not."""
    if source.behind_seconds is not None:
        return SECONDS, min(source.behind_seconds, MOST)
    if source.lag_offsets is not None:
        return OFFSET, min(source.lag_offsets, MOST)
    if source.backlog_bytes is not None:
        return "byte", min(source.backlog_bytes, MOST)
    if source.backlog_files is not None:
        return "file", min(source.backlog_files, MOST)
    return None


def is_due(before: Intake | None, source: SourceProgress, at: float) -> bool:
    """Whether what a source reports is to be applied: not at each of many short batches.

    That all is read, or not any more, is news. Without ends, no batch can be left out.
    """
    reported = lag_of(source)
    if reported is None or before is None or at - before.at >= SAMPLE_SECONDS:
        return reported is not None
    unit, lag = reported
    is_countable = unit != OFFSET or before.extent != NO_EXTENT
    return unit != before.unit or (lag > 0) != (before.lag > 0) or not is_countable


def between_runs(intakes: Mapping[int, Intake]) -> dict[int, Intake]:
    """Keep the rhythm of the sources for the next run on the checkpoint, but not our speed."""
    return {index: replace(intake, marks=()) for index, intake in intakes.items()}


def end_at(ends: Ends, at: float) -> float:
    """How much had arrived by then; the first or the last figure outside of what is known."""
    place = bisect_right(ends, (at, inf))
    if place in (0, len(ends)):
        return ends[min(place, len(ends) - 1)][1]
    (before_at, before), (after_at, after) = ends[place - 1], ends[place]
    return before + (after - before) * (at - before_at) / (after_at - before_at)


def _extent(source: SourceProgress, lag: float) -> Extent:
    """How many partitions a batch has read, and the sum of their ends in the source."""
    read = whole(source.end)
    if source.end is None or len(read) != len(source.end):
        return NO_EXTENT
    return len(read), sum(read.values()) + lag


def _arrived(before: Intake | None, extent: Extent, otherwise: float) -> float:
    """How much has arrived since; that of other partitions does not count.

    Where offsets are no numbers: ``otherwise``, of which some was known to be unread.
    """
    if before is None:
        return 0.0
    if extent == NO_EXTENT:
        return min(MOST, max(0.0, otherwise - before.lag))
    return max(0.0, extent[1] - before.extent[1]) if before.extent[0] == extent[0] else 0.0


def _marked(after: Intake, last: Mark, pace: Pace) -> tuple[Mark, ...]:
    """The marks with that of the newest commit, which alone is left once it has caught up."""
    marks = after.marks
    committed_at = pace.committed_at if last.at < pace.committed_at <= after.at else after.at
    is_close = after.lag <= 0 or after.read >= _arrived_by(after, committed_at - pace.close)
    mark = Mark(committed_at, after.read, after.at, after.end, is_close)
    if is_close or _was_down(marks, committed_at, pace):
        return (mark,)
    if len(marks) == 1 and committed_at - last.at <= 2 * pace.batch:
        # A run takes time until its first batch begins.
        marks = (replace(last, at=max(last.at, committed_at - pace.batch)),)
    if len(marks) > 1 and committed_at - marks[-2].at < (committed_at - marks[0].at) / MAX_MARKS:
        # They cover the whole time evenly.
        marks = marks[:-1]
    return thinned((*marks, mark), MAX_MARKS)


def _arrived_by(intake: Intake, at: float) -> float:
    """How much had arrived by then, as the newest marks show; the first of them is the limit."""
    later: Mark | Intake = intake
    for mark in reversed(intake.marks):
        if mark.polled_at <= at:
            return end_at([(mark.polled_at, mark.end), _polled(later)], at)
        later = mark
    return later.end


def _polled(point: Mark | Intake) -> tuple[float, float]:
    return (point.at if isinstance(point, Intake) else point.polled_at), point.end


def _was_down(marks: Sequence[Mark], committed_at: float, pace: Pace) -> bool:
    """Whether it was hung before this commit; one that had caught up commits soon, or is idle."""
    gap = committed_at - marks[-1].at
    if len(marks) > MIN_GAPS:
        return gap > LONG_GAP * (marks[-1].at - marks[0].at) / (len(marks) - 1)
    return marks[-1].is_close and gap > LONG_GAP * pace.close


def _with_quarters(intake: Intake, before: Intake) -> Intake:
    """Close the quarters that are over; a time without polls is spread evenly over its quarters."""
    quarter = int(intake.at // QUARTER_SECONDS)
    over = quarter - intake.quarter
    polls = [(before.at, before.end), (intake.at, intake.end)]
    quarter_end = end_at(polls, quarter * QUARTER_SECONDS)
    if intake.quarter_end is None:
        return replace(intake, quarter=quarter, quarter_end=quarter_end)
    arrived = (quarter_end - intake.quarter_end) / over
    added = array("f", [arrived] * min(over, KEPT_QUARTERS)).tobytes()
    quarters = (intake.quarters + added)[-KEPT_QUARTERS * array("f").itemsize :]
    return replace(intake, quarters=quarters, quarter=quarter, quarter_end=quarter_end)
