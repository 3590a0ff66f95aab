"""The starting point of a run comes from the file times in two listings, with sanity checks."""

from __future__ import annotations

import pytest

from querypulse.listener.commit_log import Written, starting_point

WALL = 1_800_000_000.0


def point(offsets, commits, *, now=100.0):
    """The starting point of a run; file times are seconds before the read."""
    ages = [
        {one: None if age is None else WALL - age for one, age in log.items()}
        for log in (offsets, commits)
    ]
    return starting_point(*ages, now, WALL)


def test_planned_batch_without_commit_is_unfinished():
    found = point({40: 2500, 41: 2400}, {40: 2450})

    assert found.unfinished == Written(41, -2300.0, WALL - 2400)
    assert found.committed == Written(40, -2350.0, WALL - 2450)


@pytest.mark.parametrize(
    ("offsets", "commits"),
    [
        ({}, {}),
        ({40: 9.0}, {40: 8.0}),
        ({38: 30.0, 39: 20.0, 40: 9.0}, {38: 29.0, 39: 19.0, 40: 8.0}),
        ({39: 20.0}, {39: 19.0, 40: 8.0}),
    ],
    ids=[
        "a new checkpoint",
        "one batch",
        "many batches",
        "planned and committed between two listings",
    ],
)
def test_clean_end_of_the_last_run_leaves_no_unfinished_batch(offsets, commits):
    assert point(offsets, commits).unfinished is None


@pytest.mark.parametrize("age", [None, -0.1, -3600.0, WALL, 400 * 86_400.0],
                         ids=["unknown", "a moment ahead", "an hour ahead", "1970", "older than a year"])  # fmt: skip
def test_implausible_file_time_is_ignored(age):
    assert point({41: age}, {}).unfinished == Written(41)


def test_longest_batches_are_those_of_the_last_day():
    """A long batch may span a restart: planned on Friday, committed on Monday."""
    offsets = {number: 600.0 * (200 - number) for number in range(200)}
    took = dict.fromkeys(offsets, 30.0) | {9: 90_000.0, 10: 800.0, 150: 700.0, 199: 60.0}
    commits = {number: offsets[number] - took[number] for number in offsets}

    assert point(offsets, commits).longest_seconds == (700.0, 90_000.0)


@pytest.mark.parametrize(
    ("offsets", "commits", "longest"),
    [
        ({}, {}, ()),
        ({0: 50.0}, {0: 40.0}, (10.0,)),
        ({0: 50.0, 1: 30.0}, {0: 40.0, 1: 29.0}, (1.0, 10.0)),
        ({0: 50.0, 1: 30.0}, {0: 60.0, 1: 29.0}, (1.0,)),
        ({0: None, 1: 30.0}, {0: 40.0, 1: None}, ()),
    ],
)
def test_batch_without_two_plausible_times_has_no_duration(offsets, commits, longest):
    assert point(offsets, commits).longest_seconds == longest
