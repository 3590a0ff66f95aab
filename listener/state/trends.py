"""Trends over many batches: stuck or rewound offsets, rising lag, a stuck watermark, late rows.

Each trend keeps only its start and a count, so its size does not grow with its length. Pure;
times are monotonic seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from math import inf
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from ..events import Progress, SourceProgress
from ..offsets import WHOLE, Offsets, Position, behind, is_before
from .sources import PolledSource, spread, thinned

MAX_POINTS = 32
SAMPLES = 3
FAR_BEHIND_SECONDS = 300.0
POLL_IS_OLD_SECONDS = 300.0
"""Twenty polls at the default interval: the source does not answer, and Spark's figure counts."""
HOUR_SECONDS = 3600.0
DAY_SECONDS = 86_400.0
MUCH_LATE = 0.1
LITTLE_LATE = 0.01
LATE_FACTOR = 3.0
"""So much more than was usual the day before is news, unless it is little."""
LONGEST_DELAY_SECONDS = 365 * 86_400.0
"""No watermark is so far behind the rows: one that is 0 has never advanced."""
UNKNOWN_CLOCKS_SECONDS = 3600.0
"""A row that came before we watched may have been so far ahead of the first one that we saw; and
so long a watermark may have been the same."""
LONG_BATCH_SECONDS = 60.0
"""Where a trigger has no interval, the next batch begins at once: a longer one reads older data."""
_LAG = attrgetter("lag")
POLLED = "offsets at the source"
"""The unit of the lag that the polls show."""


class Streak(msgspec.Struct, frozen=True, gc=False):
    """What held for the last ``batches`` batches, since the first of them."""

    since: float
    batches: int


class Rewind(Streak, frozen=True, gc=False):
    """A partition ended before its earlier offset ``was``."""

    was: Position
    now: Position


NO_STREAKS: dict[str, Streak] = {}
NO_REWINDS: dict[str, Rewind] = {}
"""Nearly every source has these, so that it needs no dictionaries of its own."""


class SourceTrend(msgspec.Struct, frozen=True, gc=False):
    """One source and its last end offsets.

    Partitions are ``stuck`` that ended at one offset while data was unread. Batches are ``empty``
    that moved the offsets and read no row.
    """

    description: str = ""
    end: Offsets | None = None
    stuck: dict[str, Streak] = {}
    rewound: dict[str, Rewind] = {}
    empty: Streak | None = None


class LagPoint(msgspec.Struct, frozen=True, gc=False):
    """The lag at one moment after a commit.

    ``noise`` is how many offsets arrived between the two polls that measured the lag; so many may
    have arrived since the commit. Spark's own figure is from planning time and has no noise.
    """

    at: float
    lag: float
    noise: float = 0.0
    committed: int = 0
    """The sum of the committed offsets; 0 where they are no numbers."""
    fell_at: float = -inf
    """When the lag last fell."""


class Wait(msgspec.Struct, frozen=True, gc=False):
    """How long the first record had been unread at the first poll after a commit with rows.

    ``partition`` is empty if nothing was unread. ``noise`` is the seconds between two polls, by
    which a poll may be late.
    """

    at: float
    seconds: float
    partition: str
    committed: int
    """The sum of the committed offsets, which grows with each commit that brought rows."""
    lag: int
    """All unread offsets."""
    is_least: bool
    """Whether it was unread before the first poll, so that ``seconds`` grow while it is read."""
    noise: float = 0.0


class Watermark(msgspec.Struct, frozen=True, gc=False):
    """A watermark, and what shows that it should have advanced, or is ahead of all rows.

    Since ``since``, which is None while nothing shows it, ``batches`` batches with rows have come.
    A watermark is the newest event time of all batches before, less a ``delay``, which is known
    once it has advanced. So it rightly waits for a row beyond ``highest``: with event times of the
    hour, for an hour. ``first`` is the newest event time of the first batch.

    The watermark of several sources is that of the one that is furthest behind, and it waits for
    that one: ``fed`` is when each source had its last rows, ``stood`` for how many seconds the two
    watermarks before were the same, and ``began`` when this one was first seen. ``batch`` is the
    last one that had it.
    """

    timestamp: float
    began: float
    stood: tuple[float, float] = (UNKNOWN_CLOCKS_SECONDS, UNKNOWN_CLOCKS_SECONDS)
    first: float | None = None
    highest: float | None = None
    delay: float | None = None
    since: float | None = None
    batches: int = 0
    fed: dict[int, float] = {}
    late_rows: int = 0
    batch: int = -1

    def should_advance(self, newest: float | None) -> bool:
        """Whether a row of this event time moves a watermark like this one."""
        if newest is None or self.first is None:
            return False
        if self.delay is not None:
            return newest > self.timestamp + self.delay
        if self.timestamp == 0:
            return newest > LONGEST_DELAY_SECONDS
        return newest > self.first + UNKNOWN_CLOCKS_SECONDS


class LateRows(Streak, frozen=True, gc=False):
    """Each batch with rows dropped a notable part of them as late."""

    rows: int = 0
    """At least so many: Spark counts after aggregation, where 990 of 1,000 may count as 52."""
    input_rows: int = 0


class LateShare(msgspec.Struct, frozen=True, gc=False):
    """Which part of its rows a query drops as late in the worst hour of a day."""

    day_since: float
    hour_since: float
    rows: int = 0
    """Of this hour, as ``input_rows`` are."""
    input_rows: int = 0
    highest: float = 0.0
    """Of the hours of this day that are over."""
    usual: float | None = None
    """That of the day before; None until one is known."""

    @property
    def limit(self) -> float:
        """The part of a batch from which on it is notable: a tenth, or far more than is usual."""
        if self.usual is None:
            return MUCH_LATE
        return min(MUCH_LATE, max(LITTLE_LATE, LATE_FACTOR * self.usual))


def learn_late(share: LateShare | None, progress: Progress, at: float) -> LateShare | None:
    """Count the late rows of one batch; a query without state drops none."""
    if not progress.input_rows or (progress.state_rows is None and not progress.late_rows):
        return share
    share = share or LateShare(at, at)
    if at - share.hour_since >= HOUR_SECONDS:
        highest = max(share.highest, share.rows / share.input_rows)
        share = replace(share, hour_since=at, rows=0, input_rows=0, highest=highest)
    if at - share.day_since >= DAY_SECONDS:
        share = replace(share, day_since=at, highest=0.0, usual=share.highest)
    return replace(
        share,
        rows=share.rows + progress.least_dropped,
        input_rows=share.input_rows + progress.input_rows,
    )


class LongBatches(Streak, frozen=True, gc=False):
    """Each batch took longer than ``limit``, the trigger interval; or each run of a loop.

    ``first`` and ``newest`` are the seconds that up to three of them took.
    """

    limit: float
    first: tuple[float, ...] = ()
    newest: tuple[float, ...] = ()


class Trends(msgspec.Struct, frozen=True, gc=False):
    """All trends of one query.

    ``rises`` are its lags since each last fell, by unit: "offsets", "files", "s" for seconds, and
    ``POLLED``. ``waits`` are measured by polls, ``reported`` by sources that say how late they are
    (Kinesis). Of a query that is started again and again, ``runs`` are long, not batches.
    """

    sources: tuple[SourceTrend, ...] = ()
    rises: dict[str, tuple[LagPoint, ...]] = {}
    waits: tuple[Wait, ...] = ()
    reported: tuple[Wait, ...] = ()
    watermark: Watermark | None = None
    late: LateRows | None = None
    long: LongBatches | None = None
    runs: LongBatches | None = None

    @property
    def under_way(self) -> bool:
        """Whether a trend has begun that may become a finding by time alone."""
        stuck = self.watermark is not None and self.watermark.since is not None
        return (
            stuck
            or any(rise[-1].lag > rise[0].lag for rise in self.rises.values())
            or self.late is not None
            or any(trend.stuck or trend.rewound or trend.empty for trend in self.sources)
        )


def follow(
    trends: Trends,
    progress: Progress,
    at: float,
    polled: Mapping[int, PolledSource],
    *,
    interval: float = 0.0,
    loop_began: float | None = None,
    late_limit: float = MUCH_LATE,
) -> Trends:
    """Apply one executed batch; the lag in offsets of sources that answer polls comes from these.

    A batch that drops less than ``late_limit`` of its rows as late drops few. ``loop_began`` is
    when the run of a query began that ends by itself and is started again.
    """
    before = dict(enumerate(trends.sources))
    return Trends(
        sources=tuple(
            _follow_source(before.get(index), source, at)
            for index, source in enumerate(progress.sources)
        ),
        rises=_rises(trends.rises, progress, polled, at, loop_began),
        waits=trends.waits,
        reported=_reported(trends.reported, progress, at),
        watermark=_watermark(trends.watermark, progress, at),
        late=_late(trends.late, progress, at, late_limit),
        long=_long(trends.long, progress.batch_seconds, interval or LONG_BATCH_SECONDS, at),
        runs=trends.runs,
    )


def follow_polls(
    trends: Trends,
    before: Mapping[int, PolledSource],
    polled: Mapping[int, PolledSource],
    *,
    loop_began: float | None = None,
) -> Trends:
    """Apply new polls of the sources; only the first one after each commit with rows counts.

    Later polls only show data that arrived since, which the next batch may read. Fewer committed
    offsets are those of a query that was rewound, or without a topic that was deleted.
    """
    polls = [source.poll for source in polled.values() if source.poll is not None]
    lags = [lag for poll in polls if (lag := poll.lag_offsets) is not None]
    if not lags:
        return trends
    at, lag = max(poll.at for poll in polls), sum(lags)
    committed = sum(sum(poll.committed.values()) for poll in polls)
    rise, waits = trends.rises.get(POLLED, ()), trends.waits
    if rise and committed < rise[-1].committed:
        rise = ()
    if waits and committed < waits[-1].committed:
        waits = ()
    if not rise or committed != rise[-1].committed:
        point = LagPoint(at, lag, _inflow(before, polled), committed)
        rise = _grown(rise, point, loop_began)
    if not waits or committed != waits[-1].committed:
        seconds, partition, is_least = max(map(_longest_wait, polled.values()))
        earlier = [source.poll.at for source in before.values() if source.poll is not None]
        noise = at - max(earlier, default=at)
        wait = Wait(at, seconds, partition, committed, lag, is_least, noise)
        waits = thinned((*waits, wait), MAX_POINTS)
    return replace(trends, rises={**trends.rises, POLLED: rise}, waits=waits)


def carry_over(trends: Trends, *, at: float, completed: tuple[float, float] | None) -> Trends:
    """The trends for the run of the same checkpoint that begins ``at``: the last offsets.

    Where the run before ``completed``, as in a loop (when it began and ended), also all that shows
    in its batches, and its length: a loop that rests longer than it runs keeps up.
    """
    if completed is not None:
        began, ended = completed
        took = None if at - ended > ended - began else ended - began
        return replace(
            trends,
            sources=tuple(replace(s, stuck={}, rewound={}) for s in trends.sources),
            waits=(),
            reported=(),
            long=None,
            runs=_long(trends.runs, took, LONG_BATCH_SECONDS, at),
        )
    return Trends(tuple(SourceTrend(s.description, s.end) for s in trends.sources))


def _inflow(before: Mapping[int, PolledSource], polled: Mapping[int, PolledSource]) -> int:
    """How many offsets arrived between two polls of the same sources."""
    arrived = 0
    for index, source in polled.items():
        earlier = before[index].poll if index in before else None
        if earlier is not None and source.poll is not None:
            ends = source.poll.latest.items()
            arrived += sum(max(0, end - earlier.latest.get(name, end)) for name, end in ends)
    return arrived


def _longest_wait(source: PolledSource) -> tuple[float, str, bool]:
    """The longest wait of all partitions whose first unread record has a known timestamp."""
    poll = source.poll
    waits = [
        (
            poll.at - backlog.unread_since(written - poll.wall + poll.at),
            partition,
            not backlog.has_beginning,
        )
        for partition, backlog in source.backlogs.items()
        if poll is not None and (written := poll.waiting_since.get(partition)) is not None
    ]
    return max(waits, default=(0.0, "", False))


def _reported(waits: tuple[Wait, ...], progress: Progress, at: float) -> tuple[Wait, ...]:
    """Follow the batches with rows whose sources report by themselves how late they are."""
    late = [s.behind_seconds for s in progress.sources if s.behind_seconds is not None]
    if not late or not progress.input_rows:
        return waits
    wait = Wait(at, max(late), "", progress.batch_id, lag=0, is_least=False)
    return thinned((*waits, wait), MAX_POINTS)


def _follow_source(before: SourceTrend | None, source: SourceProgress, at: float) -> SourceTrend:
    if before is None or before.description not in ("", source.description):
        before = SourceTrend()
    was, ends = _positions(before.end), _positions(source.end)
    rewound, stuck = dict[str, Rewind](), behind(source.end, source.latest)
    if before.rewound or was != ends:
        for partition, now in ends.items():
            earlier = before.rewound.get(partition)
            position = earlier.was if earlier is not None else was.get(partition)
            if position is not None and is_before(now, position):
                streak = _longer(earlier, at)
                rewound[partition] = Rewind(streak.since, streak.batches, position, now)
    return SourceTrend(
        description=source.description,
        end=source.end,
        stuck={
            name: _longer(before.stuck.get(name) if was.get(name) == ends[name] else None, at)
            for name in stuck
        }
        if stuck
        else NO_STREAKS,
        rewound=rewound or NO_REWINDS,
        empty=_empty(before, source, at),
    )


def _empty(before: SourceTrend, source: SourceProgress, at: float) -> Streak | None:
    """Follow the batches without rows of a source whose offsets show that data has come.

    A single number may be a time, and text anything: they may advance in an idle source.
    """
    if source.input_rows or not isinstance(source.end, dict) or WHOLE in source.end:
        return None
    if before.end is None or source.end == before.end:
        return before.empty
    return _longer(before.empty, at)


def _longer(streak: Streak | None, at: float) -> Streak:
    return Streak(at, 1) if streak is None else Streak(streak.since, streak.batches + 1)


def _positions(offsets: Offsets | None) -> dict[str, Position]:
    return offsets if isinstance(offsets, dict) else {}


def _rises(
    rises: dict[str, tuple[LagPoint, ...]],
    progress: Progress,
    polled: Mapping[int, PolledSource],
    at: float,
    loop_began: float | None,
) -> dict[str, tuple[LagPoint, ...]]:
    """Add the lags that the sources report, by unit; batches without rows do not count."""
    reported: dict[str, list[tuple[float, int]]] = {}
    for index, source in enumerate(progress.sources if progress.input_rows else ()):
        # A source may report its lag in several units, the most exact one first.
        if source.lag_offsets is not None and not answers(polled.get(index), at):
            unit, lag = "offsets", source.lag_offsets
        elif source.backlog_files is not None:
            unit, lag = "files", source.backlog_files
        elif source.behind_seconds is not None:
            unit, lag = "s", source.behind_seconds
        else:
            continue
        read = sum(end for end in _positions(source.end).values() if isinstance(end, int))
        reported.setdefault(unit, []).append((lag, read))
    if not reported:
        return rises
    grown = dict(rises)
    for unit, figures in reported.items():
        lag = max(figures)[0] if unit == "s" else sum(lag for lag, _ in figures)
        point = LagPoint(at, lag, committed=sum(read for _, read in figures))
        grown[unit] = _grown(rises.get(unit, ()), point, loop_began)
    return grown


def answers(source: PolledSource | None, at: float) -> bool:
    """Whether a source is polled, and its broker answers."""
    poll = source.poll if source is not None else None
    return poll is not None and at - poll.at <= POLL_IS_OLD_SECONDS and poll.lag_offsets is not None


def _grown(
    rise: tuple[LagPoint, ...], point: LagPoint, loop_began: float | None
) -> tuple[LagPoint, ...]:
    """Add a point, and remove higher ones; it knows when the lag last fell by more than the noise.

    A batch that has read all that the one before left unread keeps up, however much has arrived
    meanwhile. Of each run in a loop the last point counts, and one that may have keeps up.
    """
    if loop_began is not None:
        rise = tuple(earlier for earlier in rise if earlier.at < loop_began)
    if not rise or _keeps_up(rise[-1], point, loops=loop_began is not None):
        return (point,)
    # No earlier point is higher than a later one.
    lower = rise[: bisect_right(rise, point.lag, key=_LAG)]
    fell = point.lag < rise[-1].lag - point.noise
    point = replace(point, fell_at=point.at if fell else rise[-1].fell_at)
    return spread((*lower, point), MAX_POINTS)


def _keeps_up(before: LagPoint, point: LagPoint, *, loops: bool) -> bool:
    if not point.committed:
        return loops
    return point.committed - before.committed >= before.lag - max(before.noise, point.noise)


def _watermark(before: Watermark | None, progress: Progress, at: float) -> Watermark | None:
    timestamp, newest = progress.watermark_timestamp, progress.event_time_max
    if timestamp is None:
        return None
    if before is None:
        before = Watermark(timestamp, at)
    elif before.timestamp != timestamp:
        delay, was = before.delay, before
        # The rows of a batch whose event was lost may have been newer.
        if was.highest is not None and progress.batch_id == was.batch + 1:
            delay = was.highest - timestamp
        stood = (was.stood[1], at - was.began)
        before = Watermark(timestamp, at, stood, was.first, was.highest, delay)
    before = replace(before, batch=progress.batch_id)
    fed = {index: at for index, source in enumerate(progress.sources) if source.input_rows}
    if not fed:
        return before
    if before.since is None and (before.should_advance(newest) or _is_ahead(progress)):
        before = replace(before, since=at)
    seen = [moment for moment in (before.highest, newest) if moment is not None]
    return replace(
        before,
        first=newest if before.first is None else before.first,
        highest=max(seen, default=None),
        batches=before.batches + (before.since is not None),
        fed={**before.fed, **fed},
        late_rows=before.late_rows + progress.late_rows,
    )


def _is_ahead(progress: Progress) -> bool:
    """Whether the watermark is in the future, and all rows of the batch are behind it."""
    watermark, newest = progress.watermark_timestamp, progress.event_time_max
    if watermark is None or newest is None or progress.timestamp is None:
        return False
    return newest < watermark > progress.timestamp


def _late(late: LateRows | None, progress: Progress, at: float, limit: float) -> LateRows | None:
    """Follow the batches with rows; the first one that drops few or none ends the trend."""
    if not progress.input_rows:
        return late
    drops = progress.least_dropped >= limit * progress.input_rows
    if not (drops or _drops_all(progress)):
        return None
    late = late or LateRows(at, 0)
    return LateRows(
        late.since,
        late.batches + 1,
        late.rows + progress.least_dropped,
        late.input_rows + progress.input_rows,
    )


def _drops_all(progress: Progress) -> bool:
    """Whether all rows are behind the watermark, and some were dropped or all are far behind.

    Spark counts them after partial aggregation, and where it counts none, a watermark that has
    just moved may explain a little.
    """
    watermark, newest = progress.watermark_timestamp, progress.event_time_max
    if watermark is None or newest is None or newest >= watermark:
        return False
    is_far = newest < watermark - FAR_BEHIND_SECONDS and progress.state_rows is not None
    return is_far or progress.late_rows > 0


def _long(
    long: LongBatches | None, seconds: float | None, limit: float, at: float
) -> LongBatches | None:
    """Follow the batches or runs that outlast the limit; the first shorter one ends them."""
    if seconds is None or seconds <= limit:
        return None
    long = long or LongBatches(at, 0, limit)
    first, newest = (*long.first, seconds)[:SAMPLES], (*long.newest, seconds)[-SAMPLES:]
    return LongBatches(long.since, long.batches + 1, long.limit, first, newest)
