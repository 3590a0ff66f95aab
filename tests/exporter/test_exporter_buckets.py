"""The value type behind histograms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from querypulse.exporter.published_state import Buckets, Timing

SECONDS = st.floats(0, 20, allow_nan=False)


def test_bound_is_inclusive_and_the_last_slot_takes_larger_values():
    assert Buckets.of(1.0, 2.0).add([0.5, 1.0, 1.5, 99.0]) == Buckets((1.0, 2.0), (2, 1, 1), 102.0)


@given(st.lists(SECONDS), st.lists(SECONDS))
def test_adding_in_two_steps_equals_adding_at_once(first, second):
    empty = Buckets.of(0.1, 1.0, 10.0)
    at_once, in_two = empty.add(first + second), empty.add(first).add(second)
    assert in_two.counts == at_once.counts
    assert in_two.sum == pytest.approx(at_once.sum)
    assert empty.counts == (0, 0, 0, 0)


def test_p99_is_an_upper_limit_for_that_share_of_samples():
    cases = [
        ([], None),
        ([0.5], 1.0),
        ([0.5] * 99 + [5.0], 1.0),
        ([0.5] * 98 + [5.0] * 2, 10.0),
        ([0.5, 50.0], None),
    ]
    empty = Buckets.of(1.0, 10.0)
    for samples, p99 in cases:
        assert empty.add(samples).timing() == Timing(len(samples), sum(samples), p99)
