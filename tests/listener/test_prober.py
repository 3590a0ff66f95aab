"""When the prober polls, how long its callers wait, and what its polls show of a waiting run."""

from __future__ import annotations

import json
import threading
from contextlib import suppress

import pytest
from support.patience import PATIENCE_SECONDS, until
from support.story import processing, run

from querypulse.core.guard import Guard
from querypulse.core.threads import Loop
from querypulse.listener.probe_report import ProbeReport, with_idle_progress
from querypulse.listener.prober import Prober

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


def prober(probe, interval, on_report=lambda: None, calm=0.0):
    return Prober(probe, interval, on_report, calm_seconds=calm)


@pytest.mark.parametrize("kind", [HangingProbe, SilentProbe])
def test_newest_report_is_announced_and_kept_while_silence_counts_from_it(kind):
    """Between polls nobody waits for an answer, however long the interval is."""
    announced, probe = [], kind()
    poller = prober(probe, 0, lambda: announced.append(poller.latest))
    assert poller.latest is None
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
    assert announced[0] is not announced[1] is poller.latest
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

    def start(probe, interval=LONG_SECONDS):
        poller = prober(probe, interval)
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


DURATIONS = {"addBatch": 1, "latestOffset": 2, "triggerExecution": 3}
COMMITTED = {"id": "q", "runId": "r", "batchId": 7, "numInputRows": 1, "durationMs": DURATIONS}
NOTHING_FOUND = {**COMMITTED, "durationMs": {"latestOffset": 2, "triggerExecution": 2}}
TEXT = json.dumps(NOTHING_FOUND)
WAITS, OFFSETS = run(batch=3), run(batch=3, message="Getting offsets from X", busy=True)


@pytest.mark.parametrize(
    ("polls", "rows"),
    [
        ([(WAITS, TEXT)], 1),
        ([(run(batch=3, message="Waiting for next trigger"), TEXT)], 1),
        ([(WAITS, TEXT), (WAITS, ""), (WAITS, TEXT)], 1),
        ([(WAITS, TEXT), (WAITS, json.dumps({**NOTHING_FOUND, "numInputRows": 7}))], 7),
        ([(WAITS, TEXT), (OFFSETS, ""), (WAITS, "")], 1),
        ([(OFFSETS, TEXT), (WAITS, "")], 1),
        ([(WAITS, TEXT), (processing(batch=3), ""), (run(batch=4), "")], None),
        ([(WAITS, TEXT), (WAITS, json.dumps(COMMITTED))], None),
        *[([(WAITS, text)], None) for text in ("", "{}", "null", "not JSON", '{"id":1}', "{}}{")],
    ],
)
def test_newest_trigger_without_a_batch_is_known_until_a_batch(polls, rows):
    before = run(batch=3)
    for seen, text in polls:
        before = with_idle_progress(seen, text, before)
    progress = before.idle_progress

    assert (progress and progress.input_rows) == rows
    assert progress is None or not progress.committed


def test_only_a_waiting_run_waits():
    runs = [
        processing(batch=3),
        run(batch=3, busy=True),
        OFFSETS,
        run(batch=3, message="Initializing sources"),
        run(message="Running", trigger="ContinuousTrigger(1000)"),
        run(message="Committing epoch 5", trigger="ContinuousTrigger(1000)"),
        run(batch=3, message="Stopped"),
    ]

    assert WAITS.waiting
    assert [seen for seen in runs if seen.waiting] == []
