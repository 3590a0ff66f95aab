"""How the state of each stateful operator grows, hour by hour, and what that means.

Kept for each operator: the highest figures of each hour of nine days, less than three kilobytes.
State has the rhythm of a day and of a week, so days are compared, not hours. Pure; times are
monotonic seconds, event times Unix seconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import islice, pairwise

import msgspec

from ..events import Progress
from ..state.trends import DAY_SECONDS, HOUR_SECONDS
from .operators import StateOperator, labelled

DAY = 24
WEEK = 7 * DAY
KEPT_HOURS = 9 * DAY
SAMPLE_SECONDS = 300.0
"""Between two samples, a batch costs nothing."""
MARK_SECONDS = 600.0
MAX_FOLLOWED = 8
"""So many operators of a query."""
MOST = 1e18
"""No state is larger; a progress may report any number."""
CLEARED_BY_WATERMARK = frozenset(
    {
        "stateStoreSave",
        "sessionWindowStateStoreSaveExec",
        "dedupe",
        "dedupeWithinWatermark",
        "symmetricHashJoin",
    }
)
"""Operators that remove nothing without a watermark; those with functions of the user's own have
time-outs, and time to live."""
LONGEST_WINDOW_SECONDS = 32 * DAY_SECONDS
"""Once the watermark is so far beyond what was new when we began, a window of a month has closed.
So long are many times to live, too."""

# -- following --------------------------------------------------------------------------------


class Level(msgspec.Struct, frozen=True, gc=False):
    """A figure of an operator: ``now``, its maximum in this hour, and in each hour before.

    ``hours`` are 32-bit floats, the newest last.
    """

    now: float
    most: float
    hours: bytes = b""


class OperatorGrowth(msgspec.Struct, frozen=True, gc=False):
    """The rows and the bytes of one operator, followed ``since`` then, sampled ``at``.

    ``read`` counts the rows that the query has read. ``marks`` are earlier times and their bytes,
    the older one ten minutes ago or more. ``removed_at`` is when rows were last removed, as far as
    seen, and ``newest`` the newest event time when following began. ``hour`` counts the hours of
    the clock.
    """

    kind: str
    since: float
    at: float
    hour: int
    rows: Level | None = None
    size: Level | None = None
    read: Level | None = None
    removed_at: float | None = None
    newest: float | None = None
    marks: tuple[tuple[float, float], ...] = ()

    @property
    def bytes_a_second(self) -> float:
        """How fast it grows just now; 0 where that is unknown."""
        if self.size is None or not self.marks or self.marks[0][0] >= self.at:
            return 0.0
        at, size = self.marks[0]
        return (self.size.now - size) / (self.at - at)


Growth = dict[str, OperatorGrowth]
"""By the label of an operator."""


def follow_growth(before: Growth, progress: Progress, at: float, read: int) -> Growth:
    """Apply a batch; the same object if nothing is to be sampled or noted yet.

    So many rows were ``read`` in all batches.
    """
    if not progress.operators or not _is_due(before, progress.operators, at):
        return before
    operators = islice(labelled(progress.operators).items(), MAX_FOLLOWED)
    return {
        label: _follow_operator(before.get(label), operator, progress, at, read)
        for label, operator in operators
    }


def _is_due(before: Growth, operators: Sequence[StateOperator], at: float) -> bool:
    """Whether it is time for a sample, or rows are removed for the first time in a while."""
    if len(before) != min(len(operators), MAX_FOLLOWED):
        return True
    since = at - SAMPLE_SECONDS
    for growth, operator in zip(before.values(), operators, strict=False):
        if growth.at <= since:
            return True
        if operator.rows_removed and (growth.removed_at is None or growth.removed_at <= since):
            return True
    return False


def _follow_operator(
    before: OperatorGrowth | None,
    operator: StateOperator,
    progress: Progress,
    at: float,
    read: int,
) -> OperatorGrowth:
    hour = int(at // HOUR_SECONDS)
    newest = progress.event_time_max
    size = operator.state_bytes
    if before is None:
        before = OperatorGrowth(operator.name, at, at, hour)
    over = hour - before.hour
    return OperatorGrowth(
        operator.name,
        before.since,
        at,
        max(hour, before.hour),
        _level(before.rows, operator.rows, over),
        _level(before.size, size, over),
        _level(before.read, read, over),
        at if operator.rows_removed else before.removed_at,
        newest if before.newest is None else before.newest,
        _marks(before.marks, at, size),
    )


def _marks(
    marks: tuple[tuple[float, float], ...], at: float, size: float | None
) -> tuple[tuple[float, float], ...]:
    if size is None or (marks and at - marks[-1][0] < MARK_SECONDS):
        return marks
    return (*marks[-1:], (at, min(max(0.0, float(size)), MOST)))


def _level(before: Level | None, figure: float | None, over: int) -> Level | None:
    if figure is None:
        return before
    figure = min(max(0.0, float(figure)), MOST)
    if before is None:
        return Level(figure, figure)
    if over <= 0:
        return Level(figure, max(before.most, figure), before.hours)
    return Level(figure, figure, _hours(before, over))


def _hours(level: Level, over: int) -> bytes:
    """Its hours once ``over`` more are over; without a batch, state stays as it is."""
    if over <= 0:
        return level.hours
    passed = array("f", [level.most, *[level.now] * (min(over, KEPT_HOURS) - 1)])
    return (level.hours + passed.tobytes())[-KEPT_HOURS * passed.itemsize :]


# -- reading ----------------------------------------------------------------------------------

Series = Sequence[float]
"""The highest figure of each hour, that of the hour that has begun last."""
FEW_HOURS = 6
"""Of a shorter time, nothing is extrapolated."""
STILL = 0.1
"""Of what the day lets expect, less in the last hours is a growth that is over."""
PAST_ITS_TOP = 0.98


def series_of(level: Level | None, growth: OperatorGrowth, now: float) -> Series:
    """The hours of a figure up to ``now``; empty if it is not known."""
    if level is None:
        return ()
    over = int(now // HOUR_SECONDS) - growth.hour
    return [*array("f", _hours(level, over)), level.now if over > 0 else level.most]


def total_size(growths: Mapping[str, OperatorGrowth], now: float) -> Series:
    """The bytes of all operators, as far back as all are known; empty if one is not."""
    sizes = [series_of(growth.size, growth, now) for growth in growths.values()]
    known = min(map(len, sizes), default=0)
    return [sum(figures) for figures in zip(*(size[-known:] for size in sizes), strict=True)]


def next_day(series: Series) -> float | None:
    """How much the highest figure of a day grows until tomorrow; None if that is not known.

    As much as since yesterday; where a week is known, what this day of the week brought then, and
    as much more as today had more.
    """
    known = len(series) - 1
    if known < FEW_HOURS:
        return None
    if known < DAY:
        grown = (series[-1] - series[0]) * DAY / known
    else:
        grown = _top(series, 0) - _top(series, DAY)
    if _is_over(series, grown):
        return None
    if known >= WEEK + DAY:
        then = [_top(series, WEEK - DAY), _top(series, WEEK), _top(series, WEEK + DAY)]
        grown += then[0] - then[1] - (then[1] - then[2])
    return grown


def _top(series: Series, hours_ago: int) -> float:
    """The highest figure of the day that ended so long ago."""
    end = len(series) - hours_ago
    return max(series[max(0, end - DAY) : end])


def _is_over(series: Series, grown: float) -> bool:
    """Whether a state that never falls has stopped growing, as after a backlog."""
    if series[-1] < PAST_ITS_TOP * _top(series, 0):
        return False
    return series[-1] - series[-1 - FEW_HOURS] < STILL * grown * FEW_HOURS / DAY


COUNTS_FROM = 0.7
"""Of a limit; a limit is declared with some room above what is usual."""
NEARLY_FULL = 0.9


def seconds_until(series: Series, limit: float) -> float | None:
    """In how many seconds it reaches the limit; None if not within a day, or if unknown."""
    if not series:
        return None
    if series[-1] >= limit:
        return 0.0
    top = _top(series, 0)
    grown = next_day(series) if top >= COUNTS_FROM * limit else None
    if grown is None or grown <= 0:
        return None
    seconds = max(0.0, limit - top) / grown * DAY_SECONDS
    return seconds if seconds <= DAY_SECONDS else None


def seconds_at_this_rate(
    growths: Mapping[str, OperatorGrowth], series: Series, limit: float
) -> float | None:
    """The same by how fast all grow just now, near the limit, if it was not as high in a day."""
    rate = sum(growth.bytes_a_second for growth in growths.values())
    highest = max(series[-1 - DAY : -1], default=0.0)
    if series[-1] < NEARLY_FULL * limit or series[-1] <= highest or rate <= 0:
        return None
    return max(0.0, limit - series[-1]) / rate


LEAST_DAYS = 3
NOTABLE_A_DAY = 0.02
NOTABLE_IN_ALL = 1.2
NOT_LEVELLING_OFF = 0.9
NOTABLE_IN_HOURS = 0.05
LEVEL = 0.05


def keeps_growing(series: Series, read: Series) -> bool:
    """Whether it grew on each day that is known, three at least, and does not level off.

    Days differ in what is ``read``, so that growth is compared for the same number of rows.
    """
    days = (len(series) - 1) // DAY
    if days < LEAST_DAYS or len(read) < len(series):
        return False
    ends = [series[-1 - DAY * day] for day in range(days + 1)]
    is_notable = ends[0] - ends[1] >= NOTABLE_A_DAY * ends[0] >= 0
    has_grown = ends[0] >= NOTABLE_IN_ALL * ends[-1]
    if not (is_notable and has_grown) or any(later <= sooner for later, sooner in pairwise(ends)):
        return False
    newest = (ends[0] - ends[1]) * (read[-1 - DAY] - read[-1 - DAY * days])
    earlier = (ends[1] - ends[-1]) * (read[-1] - read[-1 - DAY])
    return newest >= NOT_LEVELLING_OFF * earlier


def is_level(series: Series) -> bool:
    """Whether it is about the same as when it was seen first."""
    return abs(series[-1] - series[0]) <= LEVEL * series[-1]


def grew_for_hours(series: Series) -> bool:
    """Whether it grew notably in the last hours."""
    if len(series) <= FEW_HOURS:
        return False
    return series[-1] - series[-1 - FEW_HOURS] >= NOTABLE_IN_HOURS * series[-1] > 0


class Cause(str, Enum):
    """Why what removes rows does not follow."""

    NO_WATERMARK = "no_watermark"
    WATERMARK_STUCK = "watermark_stuck"
    NEVER_REMOVED = "never_removed"


def cause_of(growth: OperatorGrowth, progress: Progress, now: float) -> Cause | None:
    """Why nothing is removed; None if something is, or is not due yet, or the cause is unknown.

    A watermark that is stuck shows elsewhere.
    """
    if growth.removed_at is not None and now - growth.removed_at < LONGEST_WINDOW_SECONDS:
        return None
    is_cleared = growth.kind in CLEARED_BY_WATERMARK
    watermark = progress.watermark_timestamp
    if watermark is None and is_cleared:
        return Cause.NO_WATERMARK
    if watermark is not None and growth.newest is not None:
        is_due = watermark - growth.newest >= LONGEST_WINDOW_SECONDS
        if is_due and (is_cleared or now - growth.since >= LONGEST_WINDOW_SECONDS):
            return Cause.NEVER_REMOVED
        return None
    return Cause.NEVER_REMOVED if now - growth.since >= LONGEST_WINDOW_SECONDS else None
