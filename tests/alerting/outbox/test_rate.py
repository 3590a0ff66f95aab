"""No receiver gets more requests per minute than its limit."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from querypulse.alerting.retries import TokenBucket


def test_no_limit_sends_everything_at_once():
    bucket = TokenBucket(None)
    for _ in range(1000):
        bucket = bucket.taken(5.0)

    assert bucket.ready_at(5.0) == 5.0


def test_bucket_allows_a_burst_and_then_a_steady_rate():
    bucket, times, now = TokenBucket(100.0), [], 0.0
    for _ in range(25):
        now = bucket.ready_at(now)
        bucket = bucket.taken(now)
        times.append(now)

    assert times[:20] == [0.0] * 20
    assert [b - a for a, b in pairwise(times[19:])] == pytest.approx([0.75] * 5)


def test_bucket_does_not_overflow():
    """An idle hour does not allow a larger burst."""
    bucket = TokenBucket(100.0)
    for _ in range(20):
        bucket = bucket.taken(3600.0)

    assert bucket.ready_at(3600.0) > 3600.0


def test_requests_over_the_limit_delay_later_ones():
    bucket = TokenBucket(60.0)
    for _ in range(14):
        bucket = bucket.taken(0.0)

    assert bucket.ready_at(0.0) == pytest.approx(3 / 0.8)


def test_small_limit_allows_one_request():
    assert TokenBucket(1.0).ready_at(7.0) == 7.0


@given(st.lists(st.floats(0.0, 30.0), max_size=300), st.sampled_from([10.0, 60.0, 100.0]))
def test_no_minute_exceeds_the_limit(waits, per_minute):
    """The limit holds for any request times."""
    bucket, times, now = TokenBucket(per_minute), [], 0.0
    for wait in waits:
        now = bucket.ready_at(now + wait * 0.1)
        bucket = bucket.taken(now)
        times.append(now)

    for first in times:
        # The edge of the minute is one request's width.
        assert sum(first <= at < first + 59.0 for at in times) <= per_minute
