"""A pause of the driver does not count; after it, the worker polls before it evaluates."""

from __future__ import annotations

import pytest
from msgspec.structs import astuple
from support.story import CONFLICT, processing, run
from support.worker_harness import WorkerHarness

from querypulse.listener.event_reader import Ending
from querypulse.listener.state.snapshot import Pause
from querypulse.sidecar.worker import LATE_SECONDS, POLL_AGAIN_SECONDS, TICK_SECONDS


def watched(harness, *, seconds, run_now):
    """One tick and one poll per second for ``seconds``; every poll sees ``run_now``."""
    for _ in range(int(seconds)):
        harness.poll(run_now).step(after=1.0)
    return harness


def test_a_step_that_is_far_too_late_is_a_pause_that_does_not_count():
    harness = WorkerHarness().step()
    harness.step(after=60.0)

    (pause,) = harness.published[-1].snapshot.pauses
    assert isinstance(pause, Pause)
    assert astuple(pause) == pytest.approx((1060.0 + TICK_SECONDS, 60.0 - TICK_SECONDS))


@pytest.mark.parametrize("after", [0.0, TICK_SECONDS, 1.0, TICK_SECONDS + LATE_SECONDS - 0.01])
def test_a_step_that_is_slightly_late_is_no_pause(after):
    harness = WorkerHarness().step()
    harness.step(after=after).step()

    assert harness.published[-1].snapshot.pauses == ()


def test_after_a_pause_nothing_is_evaluated_until_the_probe_has_polled_again():
    harness = WorkerHarness().poll(run()).step()
    before = len(harness.published)
    harness.step(after=600.0).step().step()
    assert len(harness.published) == before
    harness.poll(run()).step()

    assert len(harness.published) == before + 1


def test_a_process_that_ends_after_a_pause_does_not_wait_for_a_poll():
    harness = WorkerHarness().poll(run()).step()
    harness.step(after=600.0)
    harness.ended(exception=CONFLICT)
    harness.inbox.put(Ending(crashed=True), lifecycle=True)
    harness.step(after=0.0)

    assert harness.reported == [("StreamingQueryFailed", "a")]


def test_a_poll_begun_before_the_end_of_the_pause_is_not_fresh():
    harness = WorkerHarness().poll(run()).step()
    before = len(harness.published)
    frozen_at = harness.clock()
    harness.step(after=600.0)
    harness.poll(run(), began_at=frozen_at + 0.1).step()

    assert len(harness.published) == before


def test_a_probe_silent_after_a_pause_does_not_stop_the_evaluation():
    harness = WorkerHarness().poll(run()).step()
    before = len(harness.published)
    harness.step(after=600.0)
    while harness.clock() < 1600.0 + POLL_AGAIN_SECONDS:
        harness.step(after=TICK_SECONDS)
    assert len(harness.published) == before
    harness.step(after=TICK_SECONDS)

    assert len(harness.published) == before + 1


@pytest.mark.fault("Time and pauses", "Every evaluation is late", "Queries are still evaluated")
def test_a_driver_that_is_late_in_every_step_is_still_evaluated():
    """In a throttled container, each step ends a pause, and the last poll is always older."""
    harness = WorkerHarness().poll(run()).step()
    harness.ended(exception=CONFLICT)
    for _ in range(10):
        harness.step(after=TICK_SECONDS + LATE_SECONDS + 1.0)
        harness.poll(run(active=False, exception=CONFLICT))

    assert harness.reported == [("StreamingQueryFailed", "a")]


def test_without_a_probe_the_worker_does_not_wait_for_it():
    harness = WorkerHarness().started().step().commit().step()
    harness.step(after=600.0)

    assert (len(harness.published), harness.reported) == (3, [])


@pytest.mark.fault(
    "Time and pauses", "The driver is frozen for minutes", "Nobody is notified afterwards"
)
def test_a_frozen_driver_pages_nobody():
    """Ten minutes of SIGSTOP are not ten minutes without a commit."""
    harness = watched(
        WorkerHarness().started().step().commit(), seconds=5, run_now=processing(batch=1)
    )
    harness.step(after=600.0)
    watched(harness, seconds=10, run_now=processing(batch=1))

    assert harness.reported == []


def test_a_driver_frozen_within_a_step_pages_nobody():
    """SIGSTOP may interrupt a step."""
    harness = watched(
        WorkerHarness().started().step().commit(), seconds=5, run_now=processing(batch=1)
    )

    def frozen(evaluated):
        harness.published.append(evaluated)
        harness.clock.now += 600.0
        harness.worker._on_evaluated = harness.on_evaluated

    harness.worker._on_evaluated = frozen
    harness.step().step()
    watched(harness, seconds=10, run_now=processing(batch=1))

    assert harness.reported == []
    assert sum(pause.seconds for pause in harness.worker.state.snapshot(0).pauses) > 590


def test_time_before_the_pause_still_counts():
    harness = watched(
        WorkerHarness().started().step().commit(), seconds=50, run_now=processing(batch=1)
    )
    harness.step(after=600.0)
    watched(harness, seconds=5, run_now=processing(batch=1))
    assert harness.reported == []
    watched(harness, seconds=10, run_now=processing(batch=1))

    assert harness.reported == [("StreamingQueryStalled", "a")]


@pytest.mark.fault(
    "Time and pauses", "A query fails while the driver is frozen", "It is reported afterwards"
)
def test_a_failure_found_after_a_pause_is_reported():
    harness = WorkerHarness().poll(run()).step()
    harness.ended(exception=CONFLICT)
    harness.step(after=600.0)
    harness.poll(run(active=False, exception=CONFLICT)).step()

    assert harness.reported == [("StreamingQueryFailed", "a")]


def test_a_marker_received_in_a_pause_passes_after_the_evaluation():
    """``flush`` promises that everything received so far is evaluated."""
    harness = WorkerHarness().poll(run()).step()
    marker = harness.ended(exception=CONFLICT).mark()
    harness.step(after=30.0)
    assert harness.reported == []
    assert not marker.passed.is_set()
    harness.poll(run(active=False, exception=CONFLICT)).step()

    assert harness.reported == [("StreamingQueryFailed", "a")]
    assert marker.passed.is_set()
