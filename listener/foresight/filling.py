"""When something is full: what it held, the older the coarser, extrapolated to a limit.

What fills up rises in each part of a past that is longer than the time to come, by about as much,
and is higher than it ever was. Where it rises and falls each day, one day is compared with the day
before. All else has no answer: what saws, warms up, levels off or is noisy. Pure; times are
monotonic seconds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import pairwise
from math import inf, log, sqrt
from statistics import fmean, pstdev

import msgspec

from ..state.trends import DAY_SECONDS
from .intake import Ends, end_at

GAP_SECONDS = 10.0
"""Points are no closer than this."""
RATIO = 12
"""Gaps between older points are up to their age divided by this: 150 points in two days."""
MOST_BYTES = 192 * 2 * array("f").itemsize
"""Points are thinned when there are more, and not with each of them."""
NEWEST_BYTES = 16 * 2 * array("f").itemsize
"""So much is added at once: a recording has what has changed, with each point."""
KEPT_SECONDS = 2 * DAY_SECONDS + 5 * 3600.0
"""The oldest points are hours apart, and one of them must be two days old."""
SHORTEST_SECONDS = 120.0
"""A rise of a shorter time shows nothing."""
REACH = 4.0
"""A rise must have lasted so many times as long as it still has to."""
WITHOUT_A_DAY = 1800.0
"""Without a day that is known, nothing is extrapolated any further: what rises for hours each
morning to 95% would be full."""
BLOCKS = 7
"""A time is cut into so many parts of one length, each of which must show the rise."""
LEAST_SHARE = 0.25
"""Between two parts it must rise by this part of the mean at least."""
SIGNAL = 2.0
"""The rise must exceed what the figures differ within a part by so much."""
NEW_HIGH = 0.1
"""It must exceed each height from which it fell before by this part of the fall."""
WIDE = 1.5
"""An interval that is longer than so many times the time says nothing."""
STRAIGHT = 0.001
SURE = 1.6
"""So many standard errors to each side hold nine cases of ten."""
LEAST_ERROR = 0.1
HOURS_COMPARED = 8
"""So many hours of two days, spread evenly."""


class Series(msgspec.Struct, frozen=True, gc=False):
    """What something held over time, in 1.5 kilobytes at most; ``at`` is its newest point."""

    began_at: float = 0.0
    at: float = -inf
    packed: bytes = b""
    """The points, oldest first: seconds since ``began_at`` and the amount, as 32-bit floats."""
    newest: bytes = b""
    """A few after those."""

    @property
    def points(self) -> Ends:
        """Times and amounts, oldest first."""
        numbers = array("f", self.packed + self.newest)
        times = (self.began_at + seconds for seconds in numbers[::2])
        return list(zip(times, numbers[1::2], strict=True))


class Full(msgspec.Struct, frozen=True, gc=False):
    """In how many seconds something is full, at ``per_second``; 0 if it is."""

    seconds: float
    earliest: float
    latest: float
    per_second: float = 0.0


def follow(series: Series, at: float, amount: float, gap: float = GAP_SECONDS) -> Series:
    """Add a reading; one that follows the newest point in less than ``gap`` is left out."""
    if series.at == -inf:
        return Series(at, at, newest=array("f", (0.0, amount)).tobytes())
    if at - series.at < gap:
        return series
    newest = series.newest + array("f", (at - series.began_at, amount)).tobytes()
    if len(newest) < NEWEST_BYTES:
        return Series(series.began_at, at, series.packed, newest)
    packed = series.packed + newest
    return Series(series.began_at, at, packed if len(packed) <= MOST_BYTES else _thinned(packed))


def _thinned(packed: bytes) -> bytes:
    numbers = array("f", packed)
    newest = numbers[-2]
    kept = array("f", (numbers[-1], newest))
    for place in range(len(numbers) - 4, -1, -2):
        age = newest - numbers[place]
        if age > KEPT_SECONDS:
            break
        # Without it, its neighbours would still be close for their age.
        is_dense = place > 0 and kept[-1] - numbers[place - 2] < age / RATIO
        if not is_dense:
            kept.extend((numbers[place + 1], numbers[place]))
    kept.reverse()
    return kept.tobytes()


def until_full(series: Series, limit: float, now: float) -> Full | None:
    """Return when the limit is reached; None if it is not, or where that would be a guess."""
    points = series.points
    if not points:
        return None
    if points[-1][1] >= limit:
        return Full(0.0, 0.0, 0.0)
    known = series.at - points[0][0]
    has_day = known >= DAY_SECONDS
    answers = [_by_day(points, limit)]
    length = SHORTEST_SECONDS
    while length <= known:
        reach = length / REACH
        farthest = reach if has_day else min(reach, WITHOUT_A_DAY)
        # It is not, for most that is healthy.
        could_be_full = points[-1][1] + SIGNAL * _risen(points, length) / REACH >= limit
        full = _by_rise(points, limit, length) if could_be_full else None
        # Nobody looked in a part without a point.
        is_seen = now - series.at < length / BLOCKS
        if full is not None and full.seconds <= farthest and is_seen:
            answers.append(full)
        length = min(2 * length, known) if length < known else inf
    sure = [answer for answer in answers if answer is not None and _width(answer) <= WIDE]
    best = min(sure, key=_width, default=None)
    return None if best is None else _after(best, now - series.at)


def _risen(points: Ends, length: float) -> float:
    return points[-1][1] - end_at(points, points[-1][0] - length)


def _width(full: Full) -> float:
    return (full.latest - full.earliest) / max(full.seconds, 1.0)


def _after(full: Full, passed: float) -> Full:
    seconds, earliest, latest = (
        max(0.0, time - passed) for time in (full.seconds, full.earliest, full.latest)
    )
    return Full(seconds, earliest, latest, full.per_second)


# -- a rise ---------------------------------------------------------------------------------------


def _by_rise(points: Ends, limit: float, length: float) -> Full | None:
    """Expect the rise of the last ``length`` to go on, also as it slows down or speeds up in it."""
    begin = points[-1][0] - length
    block = length / BLOCKS
    starts = [begin + block * place for place in range(BLOCKS)]
    lows = [end_at(points, start) for start in starts]
    highs = list(lows)
    crest = 0.0
    rate = (points[-1][1] - lows[0]) / length
    for at, amount in reversed(points):
        if at < begin:
            break
        place = min(BLOCKS - 1, int((at - begin) / block))
        lows[place] = min(lows[place], amount)
        highs[place] = max(highs[place], amount)
        crest = max(crest, amount - lows[place] - rate * (at - starts[place]))
    rises = [after - before for before, after in pairwise(lows)]
    mean = fmean(rises)
    is_steady = mean > 0 and min(rises) >= LEAST_SHARE * mean
    if not is_steady or sum(rises) < SIGNAL * crest or lows[-1] <= _proof(points, begin):
        return None
    left = max(0.0, limit - highs[-1])
    halves = fmean(rises[3:]) / fmean(rises[:3])
    newest = fmean(rises[4:]) / fmean(rises[2:4])
    seconds = left / mean * block
    differs = SURE * pstdev(rises) / mean / sqrt(len(rises)) + LEAST_ERROR
    bent = (
        _bent(left, sum(rises[3:]), halves, 3 * block),
        _bent(left, sum(rises[4:]), newest, 2 * block),
    )
    earliest = min(seconds / (1 + differs), *bent)
    latest = max(seconds * (1 + differs), *bent)
    return Full(seconds, earliest, latest, mean / block)


def _bent(left: float, rise: float, ratio: float, seconds: float) -> float:
    """How long ``left`` takes if ``rise``, of the last ``seconds``, becomes ``ratio`` times as much
    in each time as long: a geometric series, ``inf`` if its sum is less.
    """
    if abs(ratio - 1) < STRAIGHT:
        return left / rise * seconds
    grown = 1 + left * (ratio - 1) / (rise * ratio)
    return seconds * log(grown) / log(ratio) if grown > 0 else inf


def _proof(points: Ends, begin: float) -> float:
    """The height that proves a new rise: it has fallen from lower ones, and was not full there."""
    high = proof = -inf
    for _, amount in points[: bisect_right(points, (begin, inf))]:
        high = max(high, amount)
        proof = max(proof, high + NEW_HIGH * (high - amount))
    return proof


# -- a day ----------------------------------------------------------------------------------------


def _by_day(points: Ends, limit: float) -> Full | None:
    """Expect at each hour what was there a day before, and as much more as from day to day."""
    now = points[-1][0]
    if now - points[0][0] < 2 * DAY_SECONDS:
        return None
    hours = [now - DAY_SECONDS * place / HOURS_COMPARED for place in range(HOURS_COMPARED)]
    rises = [end_at(points, hour) - end_at(points, hour - DAY_SECONDS) for hour in hours]
    mean = fmean(rises)
    if mean <= 0 or min(rises) < LEAST_SHARE * mean:
        return None
    day = points[bisect_right(points, (now - DAY_SECONDS, -inf)) :]
    seconds, earliest, latest = (
        next((at - (now - DAY_SECONDS) for at, amount in day if amount + rise >= limit), inf)
        for rise in (mean, max(rises), min(rises))
    )
    return Full(seconds, earliest, latest, mean / DAY_SECONDS) if seconds < inf else None
