"""Time in which nobody watched is not silence; after it the worker looks again before it judges."""

from __future__ import annotations

import pytest
from support.desk import Desk
from support.story import CONFLICT, processing, run

from querypulse.listener.snapshot import Pause
from querypulse.sidecar.worker import LATE_SECONDS, POLL_AGAIN_SECONDS, TICK_SECONDS


def watched(desk, *, seconds, run_now):
    """Ticks and looks for so long; every look sees the same."""
    for _ in range(int(seconds)):
        desk.poll(run_now).step(after=1.0)
    return desk


def test_a_round_that_comes_far_too_late_is_a_pause_and_counted_out():
    desk = Desk().step()
    desk.step(after=60.0)

    assert desk.published[-1].snapshot.pauses == (
        Pause(1060.0 + TICK_SECONDS, 60.0 - TICK_SECONDS),
    )


@pytest.mark.parametrize("after", [0.0, TICK_SECONDS, 1.0, TICK_SECONDS + LATE_SECONDS])
def test_a_round_that_is_a_little_late_is_no_pause(after):
    desk = Desk().step()
    desk.step(after=after).step()

    assert desk.published[-1].snapshot.pauses == ()


def test_after_a_pause_nothing_is_evaluated_until_the_probe_has_polled_again():
    desk = Desk().poll(run()).step()
    before = len(desk.published)
    desk.step(after=600.0).step().step()
    assert len(desk.published) == before
    desk.poll(run()).step()

    assert len(desk.published) == before + 1


def test_a_poll_that_began_before_the_end_of_the_pause_is_not_fresh():
    desk = Desk().poll(run()).step()
    before = len(desk.published)
    frozen_at = desk.clock()
    desk.step(after=600.0)
    desk.poll(run(), began_at=frozen_at + 0.1).step()

    assert len(desk.published) == before


def test_a_probe_that_stays_silent_after_a_pause_does_not_silence_the_evaluate():
    desk = Desk().poll(run()).step()
    before = len(desk.published)
    desk.step(after=600.0)
    while desk.clock() < 1600.0 + POLL_AGAIN_SECONDS:
        desk.step(after=1.0)
    assert len(desk.published) == before
    desk.step(after=1.0)

    assert len(desk.published) == before + 1


def test_a_driver_that_is_late_in_every_round_is_evaluated_all_the_same():
    """A throttled container: each round ends a pause, and the last look is always older."""
    desk = Desk().poll(run()).step()
    desk.ended(exception=CONFLICT)
    for _ in range(10):
        desk.step(after=LATE_SECONDS + 1.0)
        desk.poll(run(active=False, exception=CONFLICT))

    assert desk.told == [("StreamingQueryFailed", "a")]


def test_where_there_is_no_probe_nobody_waits_for_it():
    desk = Desk().started().step().commit().step()
    desk.step(after=600.0)

    assert (len(desk.published), desk.told) == (3, [])


def test_a_frozen_driver_pages_nobody():
    """Ten minutes of SIGSTOP are not ten minutes without a commit."""
    desk = watched(Desk().started().step().commit(), seconds=5, run_now=processing(batch=1))
    desk.step(after=600.0)
    watched(desk, seconds=10, run_now=processing(batch=1))

    assert desk.told == []


def test_a_driver_frozen_in_the_middle_of_a_round_pages_nobody():
    """SIGSTOP does not wait until the worker waits."""
    desk = watched(Desk().started().step().commit(), seconds=5, run_now=processing(batch=1))

    def frozen(evaluated):
        desk.published.append(evaluated)
        desk.clock.now += 600.0
        desk.worker._on_evaluated = desk.on_evaluated

    desk.worker._on_evaluated = frozen
    desk.step().step()
    watched(desk, seconds=10, run_now=processing(batch=1))

    assert desk.told == []
    assert sum(pause.seconds for pause in desk.worker.state.snapshot(0).pauses) > 590


def test_time_before_the_pause_still_counts():
    desk = watched(Desk().started().step().commit(), seconds=50, run_now=processing(batch=1))
    desk.step(after=600.0)
    watched(desk, seconds=5, run_now=processing(batch=1))
    assert desk.told == []
    watched(desk, seconds=10, run_now=processing(batch=1))

    assert desk.told == [("StreamingQueryStalled", "a")]


def test_a_death_found_after_a_pause_is_told():
    desk = Desk().poll(run()).step()
    desk.ended(exception=CONFLICT)
    desk.step(after=600.0)
    desk.poll(run(active=False, exception=CONFLICT)).step()

    assert desk.told == [("StreamingQueryFailed", "a")]


def test_a_marker_that_came_in_a_pause_passes_only_when_evaluated():
    """``flush`` promises that everything heard so far is judged."""
    desk = Desk().poll(run()).step()
    marker = desk.ended(exception=CONFLICT).mark()
    desk.step(after=30.0)
    assert desk.told == []
    assert not marker.passed.is_set()
    desk.poll(run(active=False, exception=CONFLICT)).step()

    assert desk.told == [("StreamingQueryFailed", "a")]
    assert marker.passed.is_set()
