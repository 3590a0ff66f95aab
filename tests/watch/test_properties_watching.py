"""Invariants of the watcher for any behaviour of drivers and network."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.watch_harness import BAD, A, B, WatchHarness

from querypulse.watch.alerts import APP
from querypulse.watch.client import Said

pytestmark = pytest.mark.slow

GONE_AFTER = 15.0
LOST = (Said.UNREACHABLE, Said.BARRED)

gaps = st.sampled_from([0.5, 1.0, 3.0, 5.0, 9.0, 60.0])
polls = st.tuples(st.just("poll"), st.sampled_from([Said.HEALTHY, *BAD, *LOST]), gaps)
bad_polls = st.tuples(st.just("poll"), st.sampled_from(BAD), gaps)
others = st.tuples(st.sampled_from(["stopped", "proved", "other"]), st.none(), gaps)
histories = st.lists(st.one_of(polls, bad_polls, others), max_size=60)


def step(harness, kind, result, gap):
    """Apply one step; whether it shows a live driver or a graceful shutdown."""
    if kind == "poll":
        harness.poll(A, result, after=gap)
    elif kind == "stopped":
        harness.stopped(after=gap)
    elif kind == "proved":
        harness.proved(after=gap)
    else:
        harness.poll(B, after=gap, app="other")
    return kind == "stopped" or (kind == "poll" and result is Said.HEALTHY)


@given(histories)
def test_driver_down_fires_only_after_the_grace_period(history):
    harness, fine_at = WatchHarness(A, B, gone_after=GONE_AFTER), 1000.0
    for kind, result, gap in history:
        before = harness.reported
        if step(harness, kind, result, gap):
            fine_at = harness.now
        if harness.reported and not before:
            assert harness.now - fine_at >= GONE_AFTER
            assert kind != "stopped"


@given(histories)
def test_stopped_driver_is_not_reported_until_it_is_seen_again(history):
    harness, left = WatchHarness(A, B, gone_after=GONE_AFTER).poll(), False
    for kind, result, gap in history:
        step(harness, kind, result, gap)
        is_back = kind == "poll" and result in (Said.HEALTHY, Said.BARRED)
        left = kind == "stopped" or (left and not is_back)
        if left:
            assert "etl" not in harness.reported


@given(histories)
def test_alert_resolves_only_when_the_driver_answers_or_stops(history):
    harness = WatchHarness(A, B, gone_after=GONE_AFTER)
    for kind, result, gap in history:
        was_reported = harness.reported
        fine = step(harness, kind, result, gap)
        ended = set(harness.ended) - {APP}
        assert ended <= set(was_reported)
        if ended:
            assert fine or result is Said.BARRED


@given(histories)
def test_driver_that_stays_down_is_reported_after_any_history(history):
    harness = WatchHarness(A, B, gone_after=GONE_AFTER)
    for kind, result, gap in history:
        step(harness, kind, result, gap)
    harness.poll(A, app="etl").polls(Said.REFUSED, 5 * GONE_AFTER, A)
    assert len(harness.reported) == 1


@given(histories)
def test_unreachable_network_raises_no_new_driver_alert(history):
    harness = WatchHarness(A, B, gone_after=GONE_AFTER).poll(A)
    before = set(harness.reported)
    for _, _, gap in history:
        harness.poll(A, Said.UNREACHABLE, after=gap).poll(B, Said.UNREACHABLE, after=0.0)
        assert set(harness.reported) == before
