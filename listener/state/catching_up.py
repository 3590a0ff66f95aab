"""When a query has caught up: its arrivals and its consumption, fitted apart.

What has arrived at a source and what the query has read of it are two rising lines. Their slopes
say when they meet, and their noise says how sure that is. Traffic has a rhythm, so arrivals are
also kept by quarter of an hour, for a day. Pure; times are monotonic seconds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import ceil, hypot, inf, sqrt
from statistics import fmean, median, pvariance

import msgspec
from msgspec.structs import replace

from .sources import spread

MAX_MARKS = 24
QUARTER_SECONDS = 900.0
DAY_QUARTERS = 96
RATIO_QUARTERS = 24
"""Six hours show by how much today differs from the day before."""
KEPT_QUARTERS = DAY_QUARTERS + RATIO_QUARTERS
SMOOTHED_QUARTERS = 4
"""The rhythm of a day is smooth: an hour to each side; what remains is noise."""
SHORTEST_SECONDS = 120.0
"""Arrivals of a shorter time show nothing."""
BLOCKS = 6
"""Into so many parts of the same length a time is cut, to see how much they differ."""
OLD_SECONDS = 300.0
"""Twenty polls at the default interval: the source does not answer."""
LONG_GAP = 4.0
"""So many times the gaps between other commits, a query was hung or down."""
MIN_STEPS = 3
UNKNOWN_NOISE = 0.05
"""Between two commits the rate differs by so much, at least: few steps show too little of it."""
DRIFT_AN_HOUR = 0.03
"""Without a day that is known, traffic may change by so much within an hour."""
RATIO_ERROR = 0.05
SURE = 1.6
"""So many standard errors to each side are nine cases of ten."""
WIDE = 1.0
"""An interval that is longer than this part of the time says nothing."""
NEVER_SECONDS = 7 * 86_400.0
WITHOUT_A_DAY = 6 * 3600.0
"""Without a day that is known, no rate is extrapolated any further."""


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A commit ``at`` this time, up to which so much was ``read``; by the poll after it, ``end``
    had arrived. ``is_close``: the query had caught up then.
    """

    at: float
    read: float
    polled_at: float
    end: float
    is_close: bool = False


class Intake(msgspec.Struct, frozen=True, gc=False):
    """What has arrived at one source, and what the query has read of it, in its ``unit``.

    ``end`` counts all arrivals up to ``at``, of which ``lag`` are unread. ``marks`` are the commits
    since the query fell behind, thinned. ``quarters`` are the arrivals of the quarters of an hour
    before ``quarter``, by whose end ``quarter_end`` had arrived: 32-bit floats, packed.
    """

    unit: str
    at: float
    end: float
    lag: float
    marks: tuple[Mark, ...] = ()
    quarters: bytes = b""
    quarter: int = 0
    quarter_end: float | None = None
    """None in the first quarter, of which only a part is known."""

    @property
    def read(self) -> float:
        """What the query has read of all arrivals."""
        return self.end - self.lag

    @property
    def by_quarter(self) -> Sequence[float]:
        """Arrivals by quarter of an hour, the newest last; at most ``KEPT_QUARTERS``."""
        return array("f", self.quarters)


class Rate(msgspec.Struct, frozen=True, gc=False):
    """Units a second, and the standard error of that."""

    value: float
    error: float


class CaughtUp(msgspec.Struct, frozen=True, gc=False):
    """When a query has caught up, in seconds from now; ``inf`` for never at these rates.

    ``arrival`` and ``consumption`` are units a second.
    """

    seconds: float
    earliest: float
    latest: float
    unit: str
    arrival: float
    consumption: float

    @property
    def is_never(self) -> bool:
        """Whether more arrives than is read."""
        return self.seconds == inf


# -- follow -------------------------------------------------------------------------------------


def follow_intake(
    before: Intake | None,
    unit: str,
    at: float,
    arrived: float,
    lag: float,
    committed_at: float,
    *,
    batch_seconds: float,
    close_seconds: float,
) -> Intake:
    """Add a poll ``at`` this time, since the last one of which so much has ``arrived``.

    ``committed_at`` is when the newest commit was; such a batch takes ``batch_seconds``, or so long
    is the trigger interval. A query has caught up once all that is unread
    may have arrived in the last ``close_seconds``.
    """
    if before is None or before.unit != unit:
        marks = (Mark(at, 0.0, at, lag),)
        return Intake(unit, at, lag, lag, marks, quarter=int(at // QUARTER_SECONDS))
    polled = replace(before, at=at, end=before.end + arrived, lag=lag)
    after = _with_quarters(polled, before)
    last = before.marks[-1] if before.marks else None
    if last is None or after.read < last.read:
        # The first poll of a run, a rewound query, or another set of partitions.
        return replace(after, marks=(Mark(at, after.read, at, after.end),))
    if after.read == last.read:
        return after
    is_known = last.at < committed_at <= at
    mark = Mark(committed_at if is_known else at, after.read, at, after.end)
    is_close = mark.read >= _end_at(_ends(after, before.marks), mark.at - close_seconds)
    mark = replace(mark, is_close=is_close)
    if is_close or _was_down(before.marks, mark.at, close_seconds):
        return replace(after, marks=(mark,))
    marks = before.marks
    if len(marks) == 1 and mark.at - last.at <= 2 * batch_seconds:
        # A run takes time until its first batch begins.
        marks = (replace(last, at=max(last.at, mark.at - batch_seconds)),)
    return replace(after, marks=spread((*marks, mark), MAX_MARKS))


def between_runs(intake: Intake) -> Intake:
    """What the next run on the same checkpoint knows: the rhythm of the source, not our speed."""
    return replace(intake, marks=())


def _was_down(marks: Sequence[Mark], now: float, close_seconds: float) -> bool:
    """Whether it was hung between its last commit and the one now, as far as its commits show.

    A query that had caught up commits again soon, or has nothing to read.
    """
    gaps = [after.at - before.at for before, after in pairwise(marks)]
    if len(gaps) >= MIN_STEPS - 1:
        return now - marks[-1].at > LONG_GAP * max(gaps)
    return marks[-1].is_close and now - marks[-1].at > LONG_GAP * close_seconds


def _with_quarters(intake: Intake, before: Intake) -> Intake:
    """Close the quarters that are over; a time without polls is spread evenly over its quarters."""
    quarter = int(intake.at // QUARTER_SECONDS)
    over = quarter - intake.quarter
    if over <= 0:
        return intake
    polls = [(before.at, before.end), (intake.at, intake.end)]
    quarter_end = _end_at(polls, quarter * QUARTER_SECONDS)
    if intake.quarter_end is None:
        return replace(intake, quarter=quarter, quarter_end=quarter_end)
    arrived = (quarter_end - intake.quarter_end) / over
    added = array("f", [arrived] * min(over, KEPT_QUARTERS)).tobytes()
    quarters = (intake.quarters + added)[-KEPT_QUARTERS * array("f").itemsize :]
    return replace(intake, quarters=quarters, quarter=quarter, quarter_end=quarter_end)


Ends = list[tuple[float, float]]
"""Times, and what had arrived by then; ascending."""


def _ends(intake: Intake, marks: Sequence[Mark]) -> Ends:
    """All that is known of when what arrived."""
    end, at = intake.quarter_end or 0.0, intake.quarter * QUARTER_SECONDS
    ends = [] if intake.quarter_end is None else [(at, end)]
    for arrived in reversed(intake.by_quarter):
        end -= arrived
        at -= QUARTER_SECONDS
        ends.append((at, end))
    ends += [(mark.polled_at, mark.end) for mark in marks]
    ends.append((intake.at, intake.end))
    ends.sort()
    return ends


def _end_at(ends: Ends, at: float) -> float:
    """What had arrived by then; the first or the last that is known."""
    place = bisect_right(ends, (at, inf))
    if place in (0, len(ends)):
        return ends[min(place, len(ends) - 1)][1]
    (before_at, before), (after_at, after) = ends[place - 1], ends[place]
    return before + (after - before) * (at - before_at) / (after_at - before_at)


# -- fit ----------------------------------------------------------------------------------------


def caught_up(intake: Intake, now: float, *, close_seconds: float) -> CaughtUp | None:
    """Return when the query has read all that arrived; None if that is unknown or too unsure.

    A query that has just read all that there was has caught up: in 0 seconds.
    """
    if now - intake.at > OLD_SECONDS or not intake.marks:
        return None
    ends = _ends(intake, intake.marks)
    last = intake.marks[-1]
    if len(intake.marks) == 1:
        is_close = last.read >= _end_at(ends, now - LONG_GAP * close_seconds)
        is_close = is_close and ends[0][0] <= now - LONG_GAP * close_seconds
        return CaughtUp(0.0, 0.0, 0.0, intake.unit, 0.0, 0.0) if is_close else None
    consumption = _consumption(intake.marks, intake.at)
    if consumption is None:
        return None
    lag = intake.lag - consumption.value * (intake.at - last.at)
    gap = median(after.at - before.at for before, after in pairwise(intake.marks[-4:]))
    fitted = last.at - intake.marks[0].at
    meeting = Meeting(lag, consumption, close_seconds, fitted, min(gap, close_seconds) / 2)
    answers = [_by_persistence(meeting, intake, ends), _by_rhythm(meeting, intake)]
    sure = [answer for answer in answers if answer is not None and _is_sure(answer)]
    return min(sure, key=_width, default=None)


def _is_sure(answer: CaughtUp) -> bool:
    if answer.is_never:
        return answer.earliest == inf
    return 0 < _width(answer) <= WIDE * answer.seconds


def _width(answer: CaughtUp) -> float:
    return 0.0 if answer.is_never else answer.latest - answer.earliest


def _consumption(marks: Sequence[Mark], now: float) -> Rate | None:
    """How fast the query reads, by what its commits have read; None while that is unknown."""
    steps = [(after.at - before.at, after.read - before.read) for before, after in pairwise(marks)]
    if len(steps) > MIN_STEPS:
        # What a run begins with differs.
        del steps[0]
    if now - marks[-1].at > LONG_GAP * max(seconds for seconds, _ in steps):
        return None
    seconds = sum(step for step, _ in steps)
    rate = sum(read for _, read in steps) / seconds
    noise = sum((read - rate * step) ** 2 for step, read in steps)
    noise += sum((UNKNOWN_NOISE * rate * step) ** 2 for step, _ in steps)
    noise *= len(steps) / max(1 / LONG_GAP, len(steps) - 1)
    return Rate(rate, sqrt(noise) / seconds)


class Meeting(msgspec.Struct, frozen=True, gc=False):
    """So much is unread, and it is read at this rate, until only ``close_seconds`` are unread."""

    lag: float
    consumption: Rate
    close_seconds: float
    fitted_seconds: float
    """For so long the consumption was followed."""
    late: float
    """It is seen at the end of a batch, so many seconds after it, plus or minus."""

    def after(self, rates: Sequence[float], begun: float, arrives: float, reads: float) -> float:
        """Seconds until then, if what arrives and what is read differ by so many errors.

        ``rates`` are those of the quarters of a day to come, of the first of which ``begun``
        seconds are over; a single one holds for ever.
        """
        speed = self.consumption.value + reads * self.consumption.error
        lag = self.lag - rates[0] * arrives * self.close_seconds
        if lag <= 0:
            return 0.0
        if len(rates) == 1:
            net = speed - rates[0] * arrives
            return lag / net if net > 0 else inf
        seconds, length, place = 0.0, QUARTER_SECONDS - begun, 0
        while seconds < NEVER_SECONDS:
            net = speed - rates[place % len(rates)] * arrives
            if net * length >= lag:
                return seconds + lag / net
            lag -= net * length
            seconds += length
            length, place = QUARTER_SECONDS, place + 1
        return inf

    @staticmethod
    def arrival(rates: Sequence[float], begun: float, seconds: float) -> float:
        """The mean of the rates that come first."""
        count = ceil((min(seconds, DAY_QUARTERS * QUARTER_SECONDS) + begun) / QUARTER_SECONDS)
        return fmean(rates[: max(1, count)])

    def answer(
        self, intake: Intake, rates: Sequence[float], begun: float, error: float
    ) -> CaughtUp:
        """The answer if what arrives is right up to this part of it."""
        most, least = 1 + SURE * error, max(0.0, 1 - SURE * error)
        seconds = self.after(rates, begun, 1.0, 0.0)
        arrival = self.arrival(rates, begun, seconds)
        # The batches to come differ as those before did: the fewer there are, the more.
        sure = SURE * sqrt(1 + self.fitted_seconds / max(seconds, self.late, 1.0))
        soon = self.after(rates, begun, least, sure)
        if seconds == inf:
            return CaughtUp(inf, soon, inf, intake.unit, arrival, self.consumption.value)
        fast = seconds - self.after(rates, begun, 1.0, sure)
        few = seconds - self.after(rates, begun, least, 0.0)
        slow = self.after(rates, begun, 1.0, -sure) - seconds
        many = self.after(rates, begun, most, 0.0) - seconds
        return CaughtUp(
            seconds + self.late,
            max(0.0, seconds + self.late - hypot(fast, few, self.late)),
            seconds + self.late + hypot(slow, many, self.late),
            intake.unit,
            arrival,
            self.consumption.value,
        )


def _by_persistence(meeting: Meeting, intake: Intake, ends: Ends) -> CaughtUp | None:
    """Expect for a time to come what arrived in a time of the same length."""
    known = intake.at - ends[0][0]
    if known < SHORTEST_SECONDS:
        return None
    length = min(known, SHORTEST_SECONDS)
    while True:
        rate = (intake.end - _end_at(ends, intake.at - length)) / length
        seconds = meeting.after([rate], 0.0, 1.0, 0.0)
        if length >= min(seconds, known):
            break
        length = min(2 * length, known)
    horizon = min(max(seconds, 1.0), WITHOUT_A_DAY)
    error = _error_of(ends, intake.at, length, known, horizon)
    relative = error / rate if rate > 0 else 0.0
    return meeting.answer(intake, [rate], 0.0, relative)


def _error_of(ends: Ends, now: float, length: float, known: float, horizon: float) -> float:
    """How much the arrivals of the time to come may differ, by how much they did before."""
    count = int(known // length)
    rates = _rates(ends, now, length, min(count, MAX_MARKS))
    if len(rates) > BLOCKS:
        return sqrt(fmean((after - before) ** 2 for before, after in pairwise(rates)))
    rates = _rates(ends, now, length / BLOCKS, BLOCKS)
    usual = DRIFT_AN_HOUR * fmean(rates) * (length + horizon) / 2 / 3600
    half = BLOCKS // 2
    seen = (fmean(rates[:half]) - fmean(rates[half:])) * (1 + horizon / length) / 2
    drift = hypot(usual, seen)
    noise = pvariance(rates) * (1 + length / horizon) / (BLOCKS - 1)
    return hypot(drift, sqrt(noise))


def _rates(ends: Ends, now: float, length: float, count: int) -> list[float]:
    """The rates of so many times of this length before now."""
    marks = [_end_at(ends, now - length * place) for place in range(count + 1)]
    return [(after - before) / length for after, before in pairwise(marks)]


def _by_rhythm(meeting: Meeting, intake: Intake) -> CaughtUp | None:
    """Expect what arrived at these hours of the day before, as much more as today has more."""
    quarters = intake.by_quarter
    compared = len(quarters) - DAY_QUARTERS
    if compared < RATIO_QUARTERS / 4:
        return None
    day = quarters[-DAY_QUARTERS:]
    window = 2 * SMOOTHED_QUARTERS + 1
    smooth = [
        sum(day[(place + shift) % DAY_QUARTERS] for shift in range(-SMOOTHED_QUARTERS, window // 2 + 1))
        / window
        for place in range(DAY_QUARTERS)
    ]
    before = sum(quarters[:compared])
    total = sum(smooth)
    if before <= 0 or total <= 0:
        return None
    ratio = sum(quarters[-compared:]) / before
    noise = sqrt(2 * fmean((a - b) ** 2 for a, b in zip(day, smooth, strict=True)))
    rates = [ratio * arrived / QUARTER_SECONDS for arrived in smooth]
    begun = intake.at - intake.quarter * QUARTER_SECONDS
    seconds = min(meeting.after(rates, begun, 1.0, 0.0), NEVER_SECONDS)
    count = max(1.0, seconds / QUARTER_SECONDS)
    usual = total / DAY_QUARTERS
    error = hypot(RATIO_ERROR, noise / usual / sqrt(compared), noise / usual / sqrt(count))
    return meeting.answer(intake, rates, begun, error)
