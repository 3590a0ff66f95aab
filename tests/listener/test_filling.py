"""When something is full: what rises to a limit has an answer, and what only looks like it has none.

Amounts are parts of the limit, 1. Run as a program, it prints the figures that the documents quote.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, pi, sin
from random import Random

import pytest

from querypulse.listener.foresight.filling import DAY_SECONDS, Series, follow, until_full

HOUR = 3600.0
STARTS_AT = 12_345.6
Shape = Callable[[float], float]


def steady(rng: Random) -> Shape:
    level, noise = rng.uniform(0.2, 0.95), rng.uniform(0, 0.02)
    return lambda at: level + rng.gauss(0, noise)


def noisy(rng: Random) -> Shape:
    level, noise = rng.uniform(0.2, 0.8), rng.uniform(0.02, 0.06)
    return lambda at: level + rng.gauss(0, noise)


def saw(rng: Random) -> Shape:
    """Rises and falls each few minutes to hours, as what collections leave of a generation does."""
    low, high = rng.uniform(0.05, 0.4), rng.uniform(0.5, 0.8)
    period = rng.uniform(300, 4 * HOUR)
    phase = rng.random()
    return lambda at: low + (high - low) * ((at / period + phase) % 1) + rng.gauss(0, 0.005)


def step(rng: Random) -> Shape:
    """A backlog is loaded within seconds or an hour, and stays."""
    low, high = rng.uniform(0.05, 0.4), rng.uniform(0.5, 0.8)
    begins, takes = rng.uniform(0, 6 * HOUR), rng.choice((1.0, 60.0, 600.0, HOUR))
    return lambda at: low + (high - low) * min(1, max(0, at - begins) / takes) + rng.gauss(0, 0.003)


def warm_up(rng: Random) -> Shape:
    """A cache fills ever more slowly, up to nine tenths."""
    low, high = rng.uniform(0.05, 0.3), rng.uniform(0.4, 0.9)
    pace = rng.uniform(300, 5 * HOUR)
    return lambda at: low + (high - low) * (1 - exp(-at / pace)) + rng.gauss(0, 0.002)


def daily(rng: Random) -> Shape:
    level, height = rng.uniform(0.3, 0.5), rng.uniform(0.1, 0.35)
    phase = rng.random()
    return lambda at: level + height * sin(2 * pi * (at / DAY_SECONDS + phase)) + rng.gauss(0, 0.01)


def nightly(rng: Random) -> Shape:
    """Cleaned at one hour of the day."""
    low, high = rng.uniform(0.05, 0.5), rng.uniform(0.6, 0.85)
    phase = rng.random()
    return lambda at: low + (high - low) * ((at / DAY_SECONDS + phase) % 1) + rng.gauss(0, 0.003)


def restarts(rng: Random) -> Shape:
    """Falls to the ground at times, and climbs back to where it was."""
    high, pace = rng.uniform(0.4, 0.85), rng.uniform(120, 1800)
    times = sorted(rng.uniform(0, 48 * HOUR) for _ in range(6))

    def amount(at: float) -> float:
        since = at - max((time for time in times if time <= at), default=-inf)
        return 0.05 + high * (1 - exp(-since / pace)) + rng.gauss(0, 0.003)

    return amount


HEALTHY = (steady, noisy, saw, step, warm_up, daily, nightly, restarts)
SEEDS = 100
SOON = 4 * HOUR


def alarms(shape: Shape, hours: float = 50.0, every: float = 60.0) -> list[float]:
    """When a time until full was given, that is within hours."""
    series, times = Series(), []
    for reading in range(int(hours * HOUR / every)):
        at = reading * every
        series = follow(series, STARTS_AT + at, shape(at))
        full = until_full(series, 1.0, STARTS_AT + at) if reading % 5 == 0 else None
        if full is not None and full.seconds <= SOON:
            times.append(at)
    return times


class Leak:
    """A leak from ``low`` to full in ``hours``, with noise, and what was said on the way."""

    def __init__(self, rng: Random, hours: float) -> None:
        low, noise = rng.uniform(0.1, 0.5), rng.uniform(0, 0.02)
        saws, period = rng.choice((0.0, 0.05, 0.1)), rng.uniform(60, 300)
        self.full_at = hours * HOUR
        every = max(5.0, self.full_at / 3000)
        series = Series()
        self.answers: list[tuple[float, float, float, float]] = []
        at = 0.0
        while at < self.full_at:
            rise = low + (1 - low) * at / self.full_at
            amount = rise - saws * (1 - at / period % 1) + rng.gauss(0, noise) - noise
            series = follow(series, STARTS_AT + at, amount)
            full = until_full(series, 1.0, STARTS_AT + at)
            if full is not None:
                left = self.full_at - at
                self.answers.append((left, full.seconds, full.earliest, full.latest))
            at += every

    @property
    def lead(self) -> float:
        """How long before the end the first answer came, as a part of all the time; 0 for never."""
        return self.answers[0][0] / self.full_at if self.answers else 0.0


@pytest.mark.slow
@pytest.mark.parametrize("shape", HEALTHY)
def test_what_is_healthy_is_never_full_soon(shape):
    wrong = [seed for seed in range(SEEDS) if alarms(shape(Random(seed)))]

    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hours", "minutes"), [(0.5, 3), pytest.param(4.0, 18, marks=pytest.mark.nightly)]
)
def test_leak_is_reported_minutes_before_the_end_and_rightly(hours, minutes):
    leaks = [Leak(Random(seed), hours) for seed in range(SEEDS)]

    in_time = [leak for leak in leaks if leak.lead * 60 * hours >= minutes]
    first = [leak.answers[0] for leak in leaks if leak.answers]
    right = [left for left, seconds, _, _ in first if abs(seconds - left) <= 0.35 * left]
    assert len(in_time) >= 0.95 * SEEDS
    assert len(right) >= 0.9 * len(first)


@pytest.mark.nightly
def test_leak_of_a_day_is_reported_minutes_before_its_end_although_no_day_is_known():
    leaks = [Leak(Random(seed), 24.0) for seed in range(SEEDS)]

    # What was said of when is rough: noise is as large as what leaks in half an hour.
    in_time = [leak for leak in leaks if leak.lead * 60 * 24.0 >= 4]
    assert len(in_time) >= 0.95 * SEEDS


def grown(rise: Shape, seconds: float, every: float = 10.0) -> Series:
    series = Series()
    for reading in range(int(seconds / every) + 1):
        series = follow(series, STARTS_AT + reading * every, rise(reading * every))
    return series


def test_even_rise_is_full_when_its_line_says():
    series = grown(lambda at: at / HOUR, 0.85 * HOUR)

    full = until_full(series, 1.0, series.at)

    assert full is not None
    assert full.seconds == pytest.approx(0.15 * HOUR, rel=0.02)
    assert full.earliest < full.seconds < full.latest
    assert full.per_second * HOUR == pytest.approx(1.0, rel=0.02)


def test_time_passes_since_the_newest_reading():
    series = grown(lambda at: at / HOUR, 0.85 * HOUR)

    now, later = (until_full(series, 1.0, series.at + seconds) for seconds in (0, 20))

    assert now is not None
    assert later is not None
    assert now.seconds - later.seconds == pytest.approx(20)


@pytest.mark.parametrize(
    ("words", "series"),
    [
        ("nothing is known", Series()),
        ("one reading", grown(lambda at: 0.99, 0)),
        ("a rise of a minute", grown(lambda at: 0.9 + at / 700, 60)),
        ("a fall", grown(lambda at: 0.99 - at / HOUR / 10, HOUR)),
        ("a rise that has just begun", grown(lambda at: at / HOUR, 0.5 * HOUR)),
        ("a rise that is days long, on its first day", grown(lambda at: at / 1e5, 7e4, 60)),
    ],
)
def test_guess_is_no_answer(words, series):
    assert until_full(series, 1.0, series.at) is None, words


def test_what_is_full_is_full_now():
    full = until_full(grown(lambda at: 1.0, 0), 1.0, STARTS_AT)

    assert full is not None
    assert full.seconds == 0


def test_rise_that_nobody_has_seen_for_long_has_no_answer():
    series = grown(lambda at: at / HOUR, 0.85 * HOUR)

    assert until_full(series, 1.0, series.at + HOUR) is None


def test_leak_below_a_daily_rhythm_is_reported_once_two_days_are_known():
    def leak(at: float) -> float:
        return 0.15 + 0.65 * at / 4 / DAY_SECONDS + 0.2 * sin(2 * pi * at / DAY_SECONDS)

    series = grown(leak, 3.5 * DAY_SECONDS, 60.0)

    full = until_full(series, 1.0, series.at)

    assert full is not None
    assert full.seconds == pytest.approx(99.99 * HOUR - 3.5 * DAY_SECONDS, rel=0.2)


def test_series_is_bounded_and_keeps_two_days():
    series, sizes = Series(), []
    for reading in range(60_000):
        series = follow(series, reading * 10.0, 0.5)
        sizes.append(len(series.packed))

    assert max(sizes) <= 1536
    assert series.points[-1][0] - series.points[0][0] > 2 * DAY_SECONDS
    gaps = [
        after[0] - before[0]
        for before, after in zip(series.points, series.points[1:], strict=False)
    ]
    assert max(gaps) < 4 * HOUR


def main() -> None:
    for shape in HEALTHY:
        wrong = sum(bool(alarms(shape(Random(seed)))) for seed in range(SEEDS))
        print(f"{shape.__name__}: {wrong} of {SEEDS} with an alarm")
    for hours in (0.5, 4.0, 24.0):
        leaks = [Leak(Random(seed), hours) for seed in range(SEEDS)]
        leads = sorted(leak.lead for leak in leaks)
        first = [leak.answers[0] for leak in leaks if leak.answers]
        within = sum(abs(seconds - left) <= 0.2 * left for left, seconds, _, _ in first)
        held = sum(earliest <= left <= latest for left, _, earliest, latest in first)
        print(
            f"leak of {hours:g} h: reported in {len(first)} of {SEEDS}, lead as a part of its time "
            f"{leads[5]:.2f} to {leads[94]:.2f} (median {leads[50]:.2f}); of first answers "
            f"{within} within a fifth, {held} in the interval"
        )


if __name__ == "__main__":
    main()
