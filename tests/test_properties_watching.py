"""Whatever a driver does, and however the network is: what the watcher may never do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.watch_harness import BAD, A, B, WatchHarness

from querypulse.sidecar.watch.blindness import APP
from querypulse.sidecar.watch.poll import Said

GONE_AFTER = 15.0
LOST = (Said.UNREACHABLE, Said.BARRED)

gaps = st.sampled_from([0.5, 1.0, 3.0, 5.0, 9.0, 60.0])
polls = st.tuples(st.just("look"), st.sampled_from([Said.HEALTHY, *BAD, *LOST]), gaps)
bad_polls = st.tuples(st.just("look"), st.sampled_from(BAD), gaps)
others = st.tuples(st.sampled_from(["stopped", "proved", "other"]), st.none(), gaps)
courses = st.lists(st.one_of(polls, bad_polls, others), max_size=60)


def step(watch_harness, kind, said, gap):
    """One thing happens; the answer is whether it shows that the driver lives, or left orderly."""
    if kind == "look":
        watch_harness.poll(A, said, after=gap)
    elif kind == "stopped":
        watch_harness.stopped(after=gap)
    elif kind == "proved":
        watch_harness.proved(after=gap)
    else:
        watch_harness.poll(B, after=gap, app="other")
    return kind == "stopped" or (kind == "look" and said is Said.HEALTHY)


@given(courses)
def test_nobody_is_reported_before_the_driver_has_been_away_for_the_time(course):
    watch_harness, fine_at = WatchHarness(A, B, gone_after=GONE_AFTER), 1000.0
    for kind, said, gap in course:
        before = watch_harness.reported if watch_harness.all else []
        if step(watch_harness, kind, said, gap):
            fine_at = watch_harness.now
        if watch_harness.reported and not before:
            assert watch_harness.now - fine_at >= GONE_AFTER
            assert kind != "stopped"


@given(courses)
def test_a_driver_that_has_left_in_good_order_is_not_reported_until_it_was_seen_again(course):
    watch_harness, left = WatchHarness(A, B, gone_after=GONE_AFTER).poll(), False
    for kind, said, gap in course:
        step(watch_harness, kind, said, gap)
        left = kind == "stopped" or (
            left and not (kind == "look" and said in (Said.HEALTHY, Said.BARRED))
        )
        if left:
            assert "etl" not in watch_harness.reported


@given(courses)
def test_every_alert_ends_once_and_the_driver_was_well_then_or_left(course):
    watch_harness = WatchHarness(A, B, gone_after=GONE_AFTER)
    for kind, said, gap in course:
        was_reported = watch_harness.reported if watch_harness.all else []
        fine = step(watch_harness, kind, said, gap)
        ended = set(watch_harness.ended) - {APP}
        assert ended <= set(was_reported)
        if ended:
            assert fine or said is Said.BARRED


@given(courses)
def test_a_driver_that_stays_dead_is_reported_in_the_end_whatever_was_before(course):
    watch_harness = WatchHarness(A, B, gone_after=GONE_AFTER)
    for kind, said, gap in course:
        step(watch_harness, kind, said, gap)
    watch_harness.poll(A, app="etl").polls(Said.REFUSED, 5 * GONE_AFTER, A)
    assert len(watch_harness.reported) == 1


@given(courses)
def test_without_any_word_from_the_network_nobody_new_is_reported(course):
    watch_harness = WatchHarness(A, B, gone_after=GONE_AFTER).poll(A)
    before = set(watch_harness.reported)
    for _, _, gap in course:
        watch_harness.poll(A, Said.UNREACHABLE, after=gap).poll(B, Said.UNREACHABLE, after=0.0)
        assert set(watch_harness.reported) == before
