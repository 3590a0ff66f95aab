"""The prober polls on its interval or on request, and callers wait no longer than allowed."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from support.patience import PATIENCE_SECONDS, until
from support.story import run

from querypulse.core.guard import Guard
from querypulse.core.threads import Loop
from querypulse.listener.probe import Prober, ProbeReport

LONG_SECONDS = 3600.0


class HangingProbe:
    """A probe whose polls may fail or hang; counts the polls."""

    def __init__(self, *runs):
        self.began = 0
        self.failures = 0
        self.runs = runs
        self.answers = threading.Event()
        self.answers.set()

    def poll(self, clock):
        began_at = clock()
        self.began += 1
        assert self.answers.wait(PATIENCE_SECONDS)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the JVM is gone")
        return ProbeReport(began_at=began_at, at=clock(), runs=self.runs)


class SilentProbe(HangingProbe):
    """Returns nothing instead of raising, as over Spark Connect."""

    def poll(self, clock):
        with suppress(ConnectionError):
            return super().poll(clock)


class RecordedPause:
    """In the place of the event that ends a pause; the pause ends at once."""

    def __init__(self):
        self.seconds = []

    def wait(self, seconds):
        self.seconds.append(seconds)

    def clear(self):
        """Nothing was set."""


def pauses(probe, interval, *, calm=0.0):
    """How long a prober waits after one poll."""
    poller = prober(probe, interval, calm=calm)
    poller._poked = RecordedPause()
    try:
        poller.step()
    except ConnectionError:
        assert poller.latest is None
    return poller._poked.seconds


def prober(probe, interval=LONG_SECONDS, on_report=lambda: None, calm=0.0):
    return Prober(probe, interval, on_report, calm_seconds=calm)


@pytest.mark.parametrize("kind", [HangingProbe, SilentProbe])
def test_poll_without_an_answer_keeps_the_last_report_and_silence_counts_from_it(kind):
    """Between polls nobody waits for an answer, however long the interval is."""
    announced, probe = [], kind()
    poller = prober(probe, 0, lambda: announced.append(poller.latest))
    poller.step()
    assert poller.silent_seconds == 0.0
    probe.failures = 2
    for _ in range(2):
        with suppress(ConnectionError):
            poller.step()
    assert announced == [poller.latest]
    assert len(poller.probe_durations) == 1
    first = poller.silent_seconds
    until(lambda: poller.silent_seconds > first > 0.0, "the silence goes on")
    poller.step()

    assert poller.silent_seconds == 0.0


def test_newest_report_replaces_the_last_and_is_announced():
    announced = []
    poller = prober(HangingProbe(), 0, lambda: announced.append(poller.latest))
    assert poller.latest is None
    poller.step()
    poller.step()

    assert announced[0] is not announced[1]
    assert poller.latest is announced[1]
    assert len(poller.probe_durations) == 2


PAUSES = {
    "the interval": ((), 0.5, 0.0, 0.5),
    "no query": ((), 0.5, 2.0, 2.0),
    "no batch takes long": ((run(batch=3, busy=True), run("b")), 0.5, 2.0, 2.0),
    "a batch takes long": ((run(batch=3, busy=True, tasks=1),), 0.5, 2.0, 0.5),
    "one of two does": ((run(), run("b", batch=3, tasks=0)), 0.5, 2.0, 0.5),
    "a long batch has ended": ((run(batch=3, tasks=1, active=False), run("b")), 0.5, 2.0, 2.0),
    "a longer interval": ((run(),), 5.0, 2.0, 5.0),
}


@pytest.mark.parametrize(("runs", "interval", "calm", "pause"), PAUSES.values(), ids=PAUSES)
def test_next_poll_waits_for_the_interval_and_longer_while_no_batch_takes_long(
    runs, interval, calm, pause
):
    assert pauses(HangingProbe(*runs), interval, calm=calm) == [pause]


def test_failing_probe_is_not_polled_faster():
    probe = HangingProbe()
    probe.failures = 1

    assert pauses(probe, 0.5) == [0.5]


@pytest.fixture
def polling():
    """A prober in its thread; by default it waits an hour between polls."""
    stop = []

    def start(probe, interval=LONG_SECONDS, calm=0.0):
        poller = prober(probe, interval, calm=calm)
        loop = Loop("probe", poller.step, Guard())
        loop.start()
        stop.append((loop, poller, probe))
        return poller

    yield start
    for running, poller, probe in stop:
        running.stop()
        probe.answers.set()
        poller.poke()
        assert running.join(PATIENCE_SECONDS)


def test_poke_during_a_poll_is_not_lost(polling):
    probe = HangingProbe()
    probe.answers.clear()
    poller = polling(probe)
    until(lambda: probe.began == 1, "the first poll")
    poller.poke()
    probe.answers.set()
    until(lambda: probe.began == 2, "the second poll")


def test_poll_now_does_not_wait_for_the_interval(polling):
    poller = polling(HangingProbe())
    first = until(lambda: poller.latest, "the first poll")

    assert poller.poll_now(PATIENCE_SECONDS)
    assert poller.latest is not first


def test_poll_now_waits_for_a_poll_that_starts_after_the_call(polling):
    probe = HangingProbe()
    probe.answers.clear()
    poller = polling(probe)
    until(lambda: probe.began == 1, "the first poll")
    answers = []
    asking = threading.Thread(target=lambda: answers.append(poller.poll_now(PATIENCE_SECONDS)))
    asking.start()
    until(poller._poked.is_set, "the poll is requested")
    probe.answers.set()
    asking.join(PATIENCE_SECONDS)

    assert (answers, probe.began) == ([True], 2)


def test_poll_now_times_out_when_the_probe_hangs(polling):
    probe = HangingProbe()
    probe.answers.clear()
    poller = polling(probe)

    assert not poller.poll_now(0.05)
    assert poller.latest is None
    assert not probe.answers.is_set()


@pytest.mark.contains_errors
def test_poll_now_survives_a_failed_poll(polling):
    probe = HangingProbe()
    probe.failures = 1
    poller = polling(probe, interval=0.01)

    assert poller.poll_now(PATIENCE_SECONDS)
