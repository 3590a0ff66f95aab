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


@pytest.mark.parametrize("is_polled", [True, False])
def test_after_a_pause_nothing_is_evaluated_until_a_poll_or_for_some_seconds(is_polled):
    harness = WorkerHarness().poll(run()).step()
    before = len(harness.published)
    harness.step(after=600.0).step()
    while not is_polled and harness.clock() < 1600.0 + POLL_AGAIN_SECONDS:
        harness.step()
    assert len(harness.published) == before
    if is_polled:
        harness.poll(run())
    harness.step()

    assert len(harness.published) == before + 1


def test_a_process_that_ends_after_a_pause_does_not_wait_for_a_poll():
    harness = WorkerHarness().poll(run()).step()
    harness.step(after=600.0)
    harness.ended(exception=CONFLICT)
    harness.inbox.put(Ending(crashed=True), lifecycle=True)
    harness.step(after=0.0)

    assert harness.reported == [("StreamingQueryFailed", "a")]


@pytest.mark.fault("Time and pauses", "Every evaluation is late", "Queries are still evaluated")
def test_a_driver_that_is_late_in_every_step_is_still_evaluated():
    """In a throttled container, each step ends a pause, and the last poll is always older."""
    harness = WorkerHarness().poll(run()).step()
    harness.ended(exception=CONFLICT)
    for _ in range(10):
        harness.step(after=TICK_SECONDS + LATE_SECONDS + 1.0)
        harness.poll(run(active=False, exception=CONFLICT))

    assert harness.reported == [("StreamingQueryFailed", "a")]


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


@pytest.mark.parametrize(("polls", "pauses"), [(1, 1), (2, 0), (10, 0)])
def test_slow_step_in_which_polls_go_on_is_no_pause(polls, pauses):
    """One poll may be answered at once after a pause; two show that the process ran."""
    harness = WorkerHarness().poll(processing(batch=1)).step()

    def slow(evaluated):
        harness.published.append(evaluated)
        harness.clock.now += 10.0
        for number in range(polls):
            harness.poll(processing(batch=1), began_at=harness.clock.now - polls + number + 1)
        harness.worker._on_evaluated = harness.on_evaluated

    harness.worker._on_evaluated = slow
    harness.step().step()

    assert len(harness.worker.state.snapshot(0).pauses) == pauses


@pytest.mark.fault(
    "Time and pauses", "A query fails while the driver is frozen", "It is reported afterwards"
)
def test_a_failure_found_after_a_pause_is_reported():
    """A marker passes then: ``flush`` promises that everything received so far is evaluated."""
    harness = WorkerHarness().poll(run()).step()
    marker = harness.ended(exception=CONFLICT).mark()
    harness.step(after=600.0)
    assert (harness.reported, marker.passed.is_set()) == ([], False)
    harness.poll(run(active=False, exception=CONFLICT)).step()

    assert harness.reported == [("StreamingQueryFailed", "a")]
    assert marker.passed.is_set()
