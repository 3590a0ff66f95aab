"""Trends over many batches: stuck or rewound offsets, rising lag, a stuck watermark, late rows.

Each trend keeps only its start and a count, so its size does not grow with its length. Pure;
times are monotonic seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from ..events import Progress, SourceProgress
from ..offsets import WHOLE, Offsets, Position, behind, is_before
from ..source_polls import SourcePoll, inflow, spread

MAX_POINTS = 32
SAMPLES = 3
FAR_BEHIND_SECONDS = 300.0
LATE_SHARE = 0.001
"""Spark counts late rows after partial aggregation: 990 of 1,000 rows may count as 52."""
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


class StuckPartition(msgspec.Struct, frozen=True, gc=False):
    """A partition whose last ``batches`` batches ended at one offset while data was unread."""

    since: float
    batches: int


class Rewind(msgspec.Struct, frozen=True, gc=False):
    """A partition whose last ``batches`` batches ended before its earlier offset ``was``."""

    since: float
    batches: int
    was: Position
    now: Position


class Empty(msgspec.Struct, frozen=True, gc=False):
    """The last ``batches`` batches moved a source's offsets and read no row from it."""

    since: float
    batches: int


class SourceTrend(msgspec.Struct, frozen=True, gc=False):
    """One source: its last end offsets, its stuck and rewound partitions, its empty batches."""

    description: str = ""
    end: Offsets | None = None
    stuck: dict[str, StuckPartition] = {}
    rewound: dict[str, Rewind] = {}
    empty: Empty | None = None


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


class Watermark(msgspec.Struct, frozen=True, gc=False):
    """A watermark, and what shows that it should have advanced, or is ahead of all rows.

    Since ``since``, which is None while nothing shows it, ``batches`` batches with rows have come.
    A watermark is the newest event time of all batches before, less a ``delay``, which is known
    once it has advanced. So it rightly waits for a row beyond ``highest``: with event times of the
    hour, for an hour. ``first`` is the newest event time of the first batch.

    The watermark of several sources is that of the one that is furthest behind, and it waits for
    that one: ``fed`` is when each source had its last rows, ``stood`` for how many seconds the two
    watermarks before were the same, and ``began`` when this one was first seen.
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

    def should_advance(self, newest: float | None) -> bool:
        """Whether a row of this event time moves a watermark like this one."""
        if newest is None or self.first is None:
            return False
        if self.delay is not None:
            return newest > self.timestamp + self.delay
        if self.timestamp == 0:
            return newest > LONGEST_DELAY_SECONDS
        return newest > self.first + UNKNOWN_CLOCKS_SECONDS


class LateRows(msgspec.Struct, frozen=True, gc=False):
    """All of the last ``batches`` batches with rows dropped a notable part of them as late."""

    since: float
    batches: int = 0
    rows: int = 0
    """As Spark counts them: after partial aggregation, so far fewer than were read."""


class LongBatches(msgspec.Struct, frozen=True, gc=False):
    """The last ``batches`` batches each took longer than ``limit``, the trigger interval.

    ``first`` and ``newest`` are the seconds that up to three of them took.
    """

    since: float
    limit: float
    batches: int = 0
    first: tuple[float, ...] = ()
    newest: tuple[float, ...] = ()


class Trends(msgspec.Struct, frozen=True, gc=False):
    """All trends of one query.

    ``rises`` are its lags since each last fell, by unit: "offsets", "files", "s" for seconds, and
    ``POLLED``.
    """

    sources: tuple[SourceTrend, ...] = ()
    rises: dict[str, tuple[LagPoint, ...]] = {}
    watermark: Watermark | None = None
    late: LateRows | None = None
    long: LongBatches | None = None

    @property
    def under_way(self) -> bool:
        """Whether a trend has begun that may become a finding by time alone."""
        stuck = self.watermark is not None and self.watermark.since is not None
        return (
            stuck
            or any(rise[-1].lag > rise[0].lag for rise in self.rises.values())
            or self.late is not None
            or any(one.stuck or one.rewound or one.empty for one in self.sources)
        )


def follow(
    trends: Trends,
    progress: Progress,
    at: float,
    polls: Mapping[int, SourcePoll],
    *,
    interval: float = 0.0,
    loop_began: float | None = None,
) -> Trends:
    """Apply one executed batch; the lag in offsets of sources with ``polls`` comes from these.

    ``loop_began`` is when the run of a query began that ends by itself and is started again.
    """
    return Trends(
        sources=tuple(
            _follow_source(trends.sources, index, source, at)
            for index, source in enumerate(progress.sources)
        ),
        rises=trends.rises | _rises(trends.rises, progress, polls, at, loop_began),
        watermark=_watermark(trends.watermark, progress, at),
        late=_late(trends.late, progress, at),
        long=_long(trends.long, progress.batch_seconds, interval or LONG_BATCH_SECONDS, at),
    )


def follow_polls(
    trends: Trends,
    before: Mapping[int, SourcePoll],
    polls: Mapping[int, SourcePoll],
    *,
    loop_began: float | None = None,
) -> Trends:
    """Apply new polls of the sources; only the first one after each commit with rows counts.

    Later polls only show data that arrived since, which the next batch may read.
    """
    lags = [lag for poll in polls.values() if (lag := poll.lag_offsets) is not None]
    if not lags:
        return trends
    rise = trends.rises.get(POLLED, ())
    committed = sum(sum(poll.committed.values()) for poll in polls.values())
    point = LagPoint(
        at=max(poll.at for poll in polls.values()),
        lag=float(sum(lags)),
        noise=float(inflow(before, polls)),
        committed=committed,
    )
    if rise and committed <= rise[-1].committed:
        return trends
    return replace(trends, rises={**trends.rises, POLLED: _grown(rise, point, loop_began)})


def carry_over(trends: Trends, *, loops: bool) -> Trends:
    """The trends for the next run of the same checkpoint: the last offsets.

    If the query ``loops``, completes and is started again, also all that shows in its batches.
    """
    if loops:
        sources = tuple(replace(s, stuck={}, rewound={}) for s in trends.sources)
        return replace(trends, sources=sources, long=None)
    return Trends(tuple(SourceTrend(s.description, s.end) for s in trends.sources))


def _follow_source(
    known: tuple[SourceTrend, ...], index: int, source: SourceProgress, at: float
) -> SourceTrend:
    before = known[index] if index < len(known) else SourceTrend()
    if before.description not in ("", source.description):
        before = SourceTrend()
    return SourceTrend(
        description=source.description,
        end=source.end,
        stuck=_stuck(before, source, at),
        rewound=_rewound(before, source, at),
        empty=_empty(before, source, at),
    )


def _stuck(before: SourceTrend, source: SourceProgress, at: float) -> dict[str, StuckPartition]:
    stuck = {}
    for partition in behind(source.end, source.latest):
        same = _at(before.end, partition) == _at(source.end, partition)
        earlier = before.stuck.get(partition) if same else None
        if earlier is None:
            stuck[partition] = StuckPartition(at, 1)
        else:
            stuck[partition] = replace(earlier, batches=earlier.batches + 1)
    return stuck


def _rewound(before: SourceTrend, source: SourceProgress, at: float) -> dict[str, Rewind]:
    if not isinstance(before.end, dict) or not isinstance(source.end, dict):
        return {}
    rewound = {}
    for partition, now in source.end.items():
        earlier = before.rewound.get(partition)
        was = earlier.was if earlier is not None else before.end.get(partition)
        if was is None or not is_before(now, was):
            continue
        since, batches = (earlier.since, earlier.batches) if earlier is not None else (at, 0)
        rewound[partition] = Rewind(since, batches + 1, was, now)
    return rewound


def _empty(before: SourceTrend, source: SourceProgress, at: float) -> Empty | None:
    """Follow the batches without rows of a source whose offsets show that data has come.

    A single number may be a time, and text anything: they may advance in an idle source.
    """
    if source.input_rows or not isinstance(source.end, dict) or WHOLE in source.end:
        return None
    if before.end is None or source.end == before.end:
        return before.empty
    if before.empty is None:
        return Empty(at, 1)
    return replace(before.empty, batches=before.empty.batches + 1)


def _at(offsets: Offsets | None, partition: str) -> Position | None:
    return offsets.get(partition) if isinstance(offsets, dict) else None


def _rises(
    rises: Mapping[str, tuple[LagPoint, ...]],
    progress: Progress,
    polls: Mapping[int, SourcePoll],
    at: float,
    loop_began: float | None,
) -> dict[str, tuple[LagPoint, ...]]:
    """The lags that the sources report, by unit; batches without rows do not count."""
    reported: dict[str, list[tuple[float, int]]] = {}
    for index, source in enumerate(progress.sources if progress.input_rows else ()):
        is_polled = index in polls and polls[index].lag_offsets is not None
        lags = {
            "offsets": None if is_polled else source.lag_offsets,
            "files": source.backlog_files,
            "s": source.behind_seconds,
        }
        ends = source.end.values() if isinstance(source.end, dict) else ()
        read = sum(end for end in ends if isinstance(end, int))
        # A source may report its lag in several units, the most exact one first.
        for unit, lag in [(unit, lag) for unit, lag in lags.items() if lag is not None][:1]:
            reported.setdefault(unit, []).append((lag, read))
    grown = {}
    for unit, figures in reported.items():
        lag = max(figures)[0] if unit == "s" else sum(lag for lag, _ in figures)
        point = LagPoint(at, lag, committed=sum(read for _, read in figures))
        grown[unit] = _grown(rises.get(unit, ()), point, loop_began)
    return grown


def _grown(
    rise: tuple[LagPoint, ...], point: LagPoint, loop_began: float | None
) -> tuple[LagPoint, ...]:
    """Add a point; a fall within the noise removes only higher points.

    Of each run in a loop the last point counts, unless the run has read, or may have, all that the
    run before it left unread: then it keeps up, however much has arrived meanwhile.
    """
    if loop_began is not None:
        rise = tuple(earlier for earlier in rise if earlier.at < loop_began)
        if rise and (not point.committed or point.committed - rise[-1].committed >= rise[-1].lag):
            rise = ()
    fell = bool(rise) and point.lag < rise[-1].lag - point.noise
    # No earlier point is higher than a later one.
    lower = () if fell else rise[: bisect_right(rise, point.lag, key=_LAG)]
    return spread((*lower, point), MAX_POINTS)


def _watermark(known: Watermark | None, progress: Progress, at: float) -> Watermark | None:
    timestamp, newest = progress.watermark_timestamp, progress.event_time_max
    if timestamp is None:
        return None
    if known is None:
        known = Watermark(timestamp, at)
    elif known.timestamp != timestamp:
        delay = known.delay if known.highest is None else known.highest - timestamp
        stood = (known.stood[1], at - known.began)
        known = Watermark(timestamp, at, stood, known.first, known.highest, delay)
    fed = {index: at for index, source in enumerate(progress.sources) if source.input_rows}
    if not fed:
        return known
    if known.since is None and (known.should_advance(newest) or _is_ahead(progress)):
        known = replace(known, since=at)
    seen = [moment for moment in (known.highest, newest) if moment is not None]
    return replace(
        known,
        first=newest if known.first is None else known.first,
        highest=max(seen, default=None),
        batches=known.batches + (known.since is not None),
        fed={**known.fed, **fed},
        late_rows=known.late_rows + progress.late_rows,
    )


def _is_ahead(progress: Progress) -> bool:
    """Whether the watermark is in the future, and all rows of the batch are behind it."""
    watermark, newest = progress.watermark_timestamp, progress.event_time_max
    if watermark is None or newest is None or progress.timestamp is None:
        return False
    return newest < watermark > progress.timestamp


def _late(known: LateRows | None, progress: Progress, at: float) -> LateRows | None:
    """Follow the batches with rows; the first one that drops few or none ends the trend."""
    if not progress.input_rows:
        return known
    drops = progress.late_rows >= LATE_SHARE * progress.input_rows
    if not (drops or _is_far_behind(progress)):
        return None
    known = LateRows(at) if known is None else known
    return replace(known, batches=known.batches + 1, rows=known.rows + progress.late_rows)


def _is_far_behind(progress: Progress) -> bool:
    """Whether a query with state read only rows that are far behind its watermark."""
    watermark, newest = progress.watermark_timestamp, progress.event_time_max
    if watermark is None or newest is None or progress.state_rows is None:
        return False
    return newest < watermark - FAR_BEHIND_SECONDS


def _long(
    known: LongBatches | None, seconds: float | None, limit: float, at: float
) -> LongBatches | None:
    """Follow the batches that outlast the trigger interval; the first shorter one ends them."""
    if seconds is None or seconds <= limit:
        return None
    known = LongBatches(at, limit) if known is None else known
    return replace(
        known,
        batches=known.batches + 1,
        first=(*known.first, seconds)[:SAMPLES],
        newest=(*known.newest, seconds)[-SAMPLES:],
    )
