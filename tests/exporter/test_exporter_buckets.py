"""The value type behind histograms."""

from __future__ import annotations

from querypulse.exporter.published_state import Buckets, Timing


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
