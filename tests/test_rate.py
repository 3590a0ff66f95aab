"""No receiver gets more requests in a minute than it takes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from querypulse.alerting.outbox.rate import TokenBucket


def test_without_a_limit_everything_goes_at_once():
    bucket = TokenBucket(None)
    for _ in range(1000):
        bucket = bucket.taken(5.0)

    assert bucket.ready_at(5.0) == 5.0


def test_a_fifth_of_a_minute_goes_at_once_and_then_they_flow():
    bucket, times, now = TokenBucket(100.0), [], 0.0
    for _ in range(25):
        now = bucket.ready_at(now)
        bucket = bucket.taken(now)
        times.append(now)

    assert times[:20] == [0.0] * 20
    assert [b - a for a, b in pairwise(times[19:])] == pytest.approx([0.75] * 5)


def test_a_bucket_does_not_overflow():
    """An hour of silence is no reason for a storm."""
    bucket = TokenBucket(100.0)
    for _ in range(20):
        bucket = bucket.taken(3600.0)

    assert bucket.ready_at(3600.0) > 3600.0


def test_what_cannot_wait_is_paid_back():
    bucket = TokenBucket(60.0)
    for _ in range(14):
        bucket = bucket.taken(0.0)

    assert bucket.ready_at(0.0) == pytest.approx(3 / 0.8)


def test_a_small_limit_lets_one_go():
    assert TokenBucket(1.0).ready_at(7.0) == 7.0


@given(st.lists(st.floats(0.0, 30.0), max_size=300), st.sampled_from([10.0, 60.0, 100.0]))
def test_in_no_minute_are_there_more_than_the_limit(waits, per_minute):
    """Whenever somebody wants to send."""
    bucket, times, now = TokenBucket(per_minute), [], 0.0
    for wait in waits:
        now = bucket.ready_at(now + wait * 0.1)
        bucket = bucket.taken(now)
        times.append(now)

    for first in times:
        # The edge of the minute is one request's width.
        assert sum(first <= at < first + 59.0 for at in times) <= per_minute
