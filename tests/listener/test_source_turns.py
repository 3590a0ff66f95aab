"""Which runs are polled next if there are more than one interval allows."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from querypulse.listener.sources.reader import next_turn

INTERVAL = 15.0
MOST = 3


def polled(runs, seconds, most=MOST):
    """The polls of each run with one step per second; a run is due one interval after a poll."""
    moments = {run: [] for run in runs}
    for now in range(seconds):
        before = {run: times[-1] for run, times in moments.items() if times}
        due = [run for run in runs if run not in before or now - before[run] >= INTERVAL]
        for run in next_turn(due, before, now=now, interval=INTERVAL, most=most):
            moments[run].append(now)
    return moments


def test_few_runs_are_all_polled_in_each_interval():
    assert polled("abc", 31) == {run: [0, 15, 30] for run in "abc"}


def test_many_runs_are_polled_in_turns():
    assert polled("abcd", 46) == {
        "a": [0, 15, 30, 45],
        "b": [0, 15, 30, 45],
        "c": [0, 30],
        "d": [15, 45],
    }


def test_run_that_was_never_polled_comes_first():
    before = {"a": 0.0, "b": 1.0, "c": 2.0}

    assert next_turn("abcz", before, now=17.0, interval=INTERVAL, most=1) == ["z"]
    assert next_turn("abc", before, now=17.0, interval=INTERVAL, most=1) == ["a"]


def test_recent_polls_count_towards_the_limit():
    before = {"a": 10.0, "b": 11.0}

    assert next_turn("cde", before, now=12.0, interval=INTERVAL, most=3) == ["c"]
    assert next_turn("cde", before, now=12.0, interval=INTERVAL, most=2) == []


@settings(max_examples=40)
@given(st.integers(1, 20), st.integers(1, 6))
def test_every_run_is_polled_regularly_within_the_limit(count, most):
    runs = range(count)
    moments = polled(runs, 400, most)
    every = sorted(at for times in moments.values() for at in times)
    longest = math.ceil(count / most) * INTERVAL

    assert all(sum(at <= other < at + INTERVAL for other in every) <= most for at in every)
    for times in moments.values():
        gaps = [late - soon for soon, late in zip([-1, *times], [*times, 400], strict=True)]
        assert max(gaps) <= longest + 1
