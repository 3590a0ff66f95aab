"""When a query has caught up: its arrivals and its consumption, fitted apart.

The lines of an ``Intake`` are extrapolated until they meet; their noise shows how sure that is. The
consumption is that of the commits since the query fell behind. What arrives is expected as in a
past of the same length, or as at these hours of the day before. Nothing is learned; the answer is
None where it would be a guess. Pure; times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, islice, pairwise
from math import ceil, hypot, inf, sqrt
from statistics import fmean, median, pvariance

import msgspec
from msgspec.structs import replace

from ..state.query import Query, pace_of
from ..state.sources import Edge, Exposure, PolledSource
from .intake import (
    DAY_QUARTERS,
    LONG_GAP,
    MAX_MARKS,
    QUARTER_SECONDS,
    Ends,
    Intake,
    Mark,
    end_at,
)

OLD_SECONDS = 300.0
"""Twenty polls at the default interval: the source does not answer."""
SHORTEST_SECONDS = 120.0
"""Arrivals of a shorter time show nothing."""
BLOCKS = 6
"""A time is cut into so many parts of one length, to see how much they differ."""
MANY_STEPS = 4
NOISE = 0.05
"""The rates between two commits differ by so much at least: few steps show too little of it."""
LONG_BATCH = 300.0
"""In a longer batch, noise evens out."""
DRIFT_AN_HOUR = 0.03
"""Without a day that is known, traffic may change by so much within an hour."""
COMPARED_QUARTERS = 6
"""So many quarters at least show how much more today has than the day before."""
RATIO_ERROR = 0.05
SMOOTHED_QUARTERS = 4
"""The rhythm of a day is smooth: an hour to each side is the same; the rest is noise."""
SURE = 1.6
"""So many standard errors to each side hold nine cases of ten."""
WIDE = 1.03
"""An interval that is longer than this part of the time says nothing."""
LONGEST_SECONDS = 7 * 86_400.0
WITHOUT_A_DAY = 6 * 3600.0
"""Without a day that is known, no error is extrapolated any further."""


class Deletion(msgspec.Struct, frozen=True, gc=False):
    """Retention deletes unread data before the query has caught up.

    It begins in ``seconds``; ``lost`` is deleted until the query has caught up, or ``per_second``
    from then on if it never does.
    """

    seconds: float
    lost: float
    per_second: float


class CaughtUp(msgspec.Struct, frozen=True, gc=False):
    """In how many seconds a query has caught up: 0 if it has, ``inf`` for never at these rates.

    ``arrival`` and ``consumption`` are in ``unit`` a second, the first as expected until then.
    """

    seconds: float
    earliest: float
    latest: float
    unit: str = ""
    arrival: float = 0.0
    consumption: float = 0.0
    deletion: Deletion | None = None

    @property
    def is_never(self) -> bool:
        """Whether more arrives than is read."""
        return self.seconds == inf


NOW = CaughtUp(0.0, 0.0, 0.0)


def caught_up(query: Query, now: float) -> CaughtUp | None:
    """Return when the query has read all that has arrived at all its sources; None if unknown.

    A run that ends by itself reads only what was there when it began, and ``continuous`` reports
    nothing: of these it is not known.
    """
    trigger = query.run.trigger
    is_endless = trigger is None or not (trigger.ends_by_itself or trigger.is_continuous)
    sources = query.checkpoint.sources.values()
    # What was deleted counts as read, so that no rate is right.
    has_lost = any(exposure.lost for source in sources for exposure in source.exposures.values())
    if not query.run.alive or not is_endless or has_lost:
        return None
    close = pace_of(query, query.run.progress).close
    # Those without a mark have not been seen in this run, which may have fewer sources.
    intakes = [intake for intake in query.checkpoint.intakes.values() if intake.marks]
    answers = [meeting_of(intake, now, close) for intake in intakes]
    known = [answer for answer in answers if answer is not None]
    if not answers or len(known) < len(answers):
        return None
    last = max(known, key=_seconds)
    deletions = [_deletion(source, now, last.seconds) for source in sources]
    first = min(filter(None, deletions), key=_seconds, default=None)
    return last if first is None else replace(last, deletion=first)


def meeting_of(intake: Intake, now: float, close_seconds: float) -> CaughtUp | None:
    """Return when all that is unread in one source has arrived in the last ``close_seconds``."""
    if now - intake.at > OLD_SECONDS or not intake.marks:
        return None
    if intake.lag <= 0:
        return NOW
    last = intake.marks[-1]
    if len(intake.marks) == 1:
        has_caught_up = last.is_close and now - last.at <= LONG_GAP * close_seconds
        return NOW if has_caught_up else None
    consumption = _consumption(intake.marks, intake.at)
    if consumption is None:
        return None
    gap = median(after.at - before.at for before, after in pairwise(intake.marks[-MANY_STEPS:]))
    meeting = _Meeting(
        unit=intake.unit,
        lag=intake.lag - consumption.value * (intake.at - last.at),
        consumption=consumption,
        fitted_seconds=last.at - intake.marks[0].at,
        close_seconds=close_seconds,
        late=min(gap, close_seconds) / 2,
        passed=now - intake.at,
    )
    answers = (_by_persistence(meeting, intake), _by_rhythm(meeting, intake))
    sure = [answer for answer in answers if answer is not None and _is_sure(answer)]
    if len(intake.marks) <= MANY_STEPS:
        sure = [answer for answer in sure if not answer.is_never]
    return min(sure, key=_width, default=None)


def _seconds(answer: CaughtUp | Deletion) -> float:
    return answer.seconds


def _width(answer: CaughtUp) -> float:
    return 0.0 if answer.is_never else answer.latest - answer.earliest


def _is_sure(answer: CaughtUp) -> bool:
    if answer.is_never:
        return answer.earliest == inf
    return 0 < _width(answer) <= WIDE * answer.seconds


# -- consumption --------------------------------------------------------------------------------


class _Rate(msgspec.Struct, frozen=True, gc=False):
    """Units a second, and the standard error of that."""

    value: float
    error: float


def _consumption(marks: Sequence[Mark], now: float) -> _Rate | None:
    """How fast the query reads, by its commits; None if the next one is overdue: it may hang."""
    steps = [(after.at - before.at, after.read - before.read) for before, after in pairwise(marks)]
    if len(steps) >= MANY_STEPS:
        # What a run begins with differs.
        del steps[0]
    if now - marks[-1].at > LONG_GAP * max(seconds for seconds, _ in steps):
        return None
    total = sum(seconds for seconds, _ in steps)
    rate = sum(read for _, read in steps) / total
    noise = sum((read - rate * seconds) ** 2 for seconds, read in steps)
    noise += sum((NOISE * rate) ** 2 * seconds * min(seconds, LONG_BATCH) for seconds, _ in steps)
    # How much steps differ is itself unsure by few of them; a single one shows nothing of it.
    noise *= (len(steps) + 1) / max(1 / LONG_GAP, len(steps) - 1)
    return _Rate(rate, sqrt(noise) / total)


class _Meeting(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The two lines, from the newest poll on, ``passed`` seconds ago.

    ``lag`` is read at the rate of ``consumption``, which was followed for ``fitted_seconds``, until
    only ``close_seconds`` are unread. That shows up to ``late`` seconds later, when a batch ends.
    """

    unit: str
    lag: float
    consumption: _Rate
    fitted_seconds: float
    close_seconds: float
    late: float
    passed: float

    def seconds(self, arrivals: _Arrivals, arriving: float = 1.0, errors: float = 0.0) -> float:
        """Seconds until the lines meet, if so much more arrives, and so many errors more is read.

        ``inf`` if they do not within ``LONGEST_SECONDS``.
        """
        speed = self.consumption.value + errors * self.consumption.error
        lag = self.lag - arrivals.rates[0] * arriving * self.close_seconds
        seconds = 0.0
        for length, rate in arrivals.ahead():
            net = speed - rate * arriving
            if lag <= 0 or seconds >= LONGEST_SECONDS:
                break
            if net > 0 and net * length >= lag:
                return seconds + lag / net
            lag -= net * length
            seconds += length
        return seconds if lag <= 0 else inf

    def answer(self, arrivals: _Arrivals) -> CaughtUp:
        """The answer with its interval, by the errors of both lines."""
        seconds = self.seconds(arrivals)
        most = 1 + SURE * arrivals.error
        least = max(0.0, 1 - SURE * arrivals.error)
        # The batches to come differ as those before did: the fewer there are, the more.
        errors = SURE * sqrt(1 + self.fitted_seconds / max(seconds, self.late, 1.0))
        arrival = arrivals.mean(seconds)
        if seconds == inf:
            soonest = self.seconds(arrivals, least, errors)
            return CaughtUp(inf, soonest, inf, self.unit, arrival, self.consumption.value)
        sooner = hypot(
            seconds - self.seconds(arrivals, errors=errors),
            seconds - self.seconds(arrivals, least),
            self.late,
        )
        later = hypot(
            self.seconds(arrivals, errors=-errors) - seconds,
            self.seconds(arrivals, most) - seconds,
            self.late,
        )
        expected = max(0.0, seconds + self.late / 2 - self.passed)
        return CaughtUp(
            expected,
            max(0.0, expected - sooner),
            expected + later,
            self.unit,
            arrival,
            self.consumption.value,
        )


# -- arrivals -----------------------------------------------------------------------------------


class _Arrivals(msgspec.Struct, frozen=True, gc=False):
    """What is expected to arrive: ``rates`` in units a second, right up to this part of it.

    They are those of the quarters of a day, of the first of which ``begun`` seconds are over. A
    single one holds for ever.
    """

    rates: Sequence[float]
    error: float
    begun: float = 0.0

    def ahead(self) -> Iterator[tuple[float, float]]:
        """Times and their rates, one after the other, for ever."""
        if len(self.rates) == 1:
            yield LONGEST_SECONDS, self.rates[0]
        yield QUARTER_SECONDS - self.begun, self.rates[0]
        for rate in islice(cycle(self.rates), 1, None):
            yield QUARTER_SECONDS, rate

    def mean(self, seconds: float) -> float:
        """The mean rate of so many seconds to come, at most of a day."""
        count = ceil((min(seconds, DAY_QUARTERS * QUARTER_SECONDS) + self.begun) / QUARTER_SECONDS)
        return fmean(self.rates[: max(1, count)])


def _by_persistence(meeting: _Meeting, intake: Intake) -> CaughtUp | None:
    """Expect in a time to come what arrived in a past of the same length."""
    ends = intake.arrivals
    longest = intake.at - ends[0][0]
    if longest < SHORTEST_SECONDS:
        return None
    length = SHORTEST_SECONDS
    while True:
        rate = (intake.end - end_at(ends, intake.at - length)) / length
        seconds = meeting.seconds(_Arrivals([rate], 0.0))
        if length >= min(seconds, longest):
            break
        length = min(2 * length, longest)
    horizon = min(max(seconds, 1.0), WITHOUT_A_DAY)
    # How much arrivals differ does not show in a time without polls.
    polled = [(at, end) for at, end in ends if at >= intake.since]
    if intake.at - polled[0][0] < SHORTEST_SECONDS:
        return None
    shorter = min(length, intake.at - polled[0][0])
    error = max(
        _error(polled, intake.at, shorter, horizon), _error(ends, intake.at, length, horizon)
    )
    return meeting.answer(_Arrivals([rate], error / rate if rate > 0 else 0.0))


def _error(ends: Ends, now: float, length: float, horizon: float) -> float:
    """How much the rate to come may differ: by so much did one such time from the next before.

    Where too few are known, by the parts of the last one: by their noise, and by their drift.
    """
    rates = _rates(ends, now, length, MAX_MARKS)
    if len(rates) > BLOCKS:
        return sqrt(fmean((after - before) ** 2 for before, after in pairwise(rates)))
    rates = _rates(ends, now, length / BLOCKS, MAX_MARKS)
    usual = DRIFT_AN_HOUR * fmean(rates) * (length + horizon) / 2 / 3600
    newer, older = rates[: BLOCKS // 2], rates[BLOCKS // 2 : BLOCKS]
    drift = (fmean(newer) - fmean(older)) * (1 + horizon / length) / 2
    noise = pvariance(rates) * (1 + length / horizon) / (BLOCKS - 1)
    return hypot(usual, drift, sqrt(noise))


def _rates(ends: Ends, now: float, length: float, most: int) -> list[float]:
    """The rates of the times of this length before now that are known, at most so many."""
    count = min(most, round((now - ends[0][0]) // length))
    marks = [end_at(ends, now - length * place) for place in range(max(count, 1) + 1)]
    return [(after - before) / length for after, before in pairwise(marks)]


def _by_rhythm(meeting: _Meeting, intake: Intake) -> CaughtUp | None:
    """Expect what arrived at these hours of the day before, and as much more as today had."""
    quarters = intake.by_quarter
    compared = len(quarters) - DAY_QUARTERS
    day = quarters[-DAY_QUARTERS:]
    if compared < COMPARED_QUARTERS or sum(quarters[:compared]) <= 0:
        return None
    usual = fmean(day)
    if usual <= 0:
        return None
    width = 2 * SMOOTHED_QUARTERS + 1
    around = [*day[-SMOOTHED_QUARTERS:], *day, *day[:SMOOTHED_QUARTERS]]
    smooth = [sum(around[place : place + width]) / width for place in range(DAY_QUARTERS)]
    ratio = sum(quarters[-compared:]) / sum(quarters[:compared])
    noise = sqrt(2 * fmean((a - b) ** 2 for a, b in zip(day, smooth, strict=True))) / usual
    rates = [ratio * arrived / QUARTER_SECONDS for arrived in smooth]
    arrivals = _Arrivals(rates, 0.0, intake.at - intake.quarter * QUARTER_SECONDS)
    seconds = min(meeting.seconds(arrivals), LONGEST_SECONDS)
    count = max(1.0, seconds / QUARTER_SECONDS)
    error = hypot(RATIO_ERROR, noise / sqrt(compared), noise / sqrt(count))
    return meeting.answer(replace(arrivals, error=error))


# -- retention ----------------------------------------------------------------------------------


def _deletion(source: PolledSource, now: float, seconds: float) -> Deletion | None:
    """The first deletion of unread data before ``seconds`` from now; None if there is none."""
    deletions = [
        deletion
        for exposure in source.exposures.values()
        if (deletion := _overtaken(source, exposure, now, seconds)) is not None
    ]
    return min(deletions, key=_seconds, default=None)


def _overtaken(
    source: PolledSource, exposure: Exposure, now: float, seconds: float
) -> Deletion | None:
    """When the edge of what is retained overtakes the query in one partition."""
    edge = source.edges.get(exposure.partition)
    ahead = None if edge is None else _edge_ahead(source, exposure, edge, now)
    if edge is None or ahead is None or len(edge.points) <= 1:
        return None
    first, last = edge.points[0], edge.points[-1]
    distance, speed = ahead
    gained = speed - (last.committed - first.committed) / (last.at - first.at)
    if gained <= 0 or distance / gained >= seconds:
        return None
    begins = distance / gained
    lost = 0.0 if seconds == inf else gained * (seconds - begins)
    return Deletion(begins, lost, gained)


def _edge_ahead(
    source: PolledSource, exposure: Exposure, edge: Edge, now: float
) -> tuple[float, float] | None:
    """How far behind the query the edge is, and its speed; None where that is unknown.

    An edge by time moves over what is unread as fast as that has arrived.
    """
    poll, partition = source.poll, exposure.partition
    if poll is None or exposure.lost or exposure.gone:
        return None
    if exposure.keeps_seconds is not None and exposure.written_at is not None:
        age = now - exposure.written_at
        speed = poll.lag_by_partition.get(partition, 0) / age if age > 0 else 0.0
        return max(0.0, exposure.keeps_seconds - age) * speed, speed
    edge_speed = edge.speed(now) if exposure.passed_at is not None else None
    if edge_speed is None:
        return None
    return float(poll.committed[partition] - edge.earliest), edge_speed
