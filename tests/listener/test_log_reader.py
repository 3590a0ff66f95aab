"""The commit-log reader reports what it read and what it could not read, and blocks nothing."""

from __future__ import annotations

import itertools
import logging
import threading
import time

import pytest
from msgspec.structs import replace
from support.log_reader_harness import LogReaderHarness, continuous
from support.patience import PATIENCE_SECONDS, until
from support.storage import MemoryCheckpoint, MemoryStorage
from support.story import Story, processing, run

from querypulse.core.guard import Guard
from querypulse.core.threads import Loop
from querypulse.listener.checkpoints import RETRY_SECONDS, LogReader
from querypulse.listener.commit_log import LoggedBatches, LogReport
from querypulse.listener.probe import ProbeReport

LONG_SECONDS = 3600.0


def test_nothing_is_read_before_the_first_probe():
    harness = LogReaderHarness(a=MemoryCheckpoint())
    assert harness.reader.latest is None
    harness.clock.now = 7.0
    harness.reader.step()

    assert harness.reader.latest == LogReport(7.0)
    assert harness.announced == [LogReport(7.0)]


def test_run_with_a_growing_log_is_in_every_report():
    harness = LogReaderHarness(a=MemoryCheckpoint([0, 1], [0]), b=MemoryCheckpoint())

    for at in (1, 2):
        report = harness.read(continuous("a"), continuous("b"), at=at)
        assert report.at == at
        assert report.logs == {"a-1": LoggedBatches(1, 0), "b-1": LoggedBatches()}
        assert report.unreadable == {}
    assert harness.announced[-1] is report
    assert harness.storage.opened == ["a", "b"]


def test_only_the_start_is_read_of_a_run_that_needs_no_log():
    harness = LogReaderHarness(**{"/cp": MemoryCheckpoint([4, 5], [4])})

    for at in (1, 2):
        report = harness.read(run(), processing("b", batch=5), at=at)
        assert (report.logs, report.starts.keys()) == ({}, {"a-1", "b-1"})
    assert harness.storage.opened == ["/cp", "/cp"]


# -- read intervals -----------------------------------------------------------------------------


def hung(query, *, batch):
    seen = processing(query, batch=batch, tasks=0)
    return replace(seen, facts=replace(seen.facts, checkpoint=query))


def asynchronous(query, *, batch):
    seen = run(query, batch=batch, async_progress=True)
    return replace(seen, facts=replace(seen.facts, checkpoint=query))


def moments_read(harness, seen, *, until):
    """The seconds at which the run's log is read, with one step a second."""
    return [at for at in range(until) if harness.read(seen, at=float(at)).logs]


def rests(moments):
    return [later - earlier for earlier, later in itertools.pairwise(moments)]


def test_log_of_a_hung_batch_is_first_read_at_half_of_the_shortest_window():
    harness = LogReaderHarness(a=MemoryCheckpoint([4, 5], [4]))
    read = moments_read(harness, hung("a", batch=5), until=60)

    assert read[0] == 30
    assert harness.reader.latest.unreadable == {}


def test_shorter_window_reads_the_log_of_a_hung_batch_sooner():
    harness = LogReaderHarness(floor=4, a=MemoryCheckpoint([4, 5], [4]))

    assert moments_read(harness, hung("a", batch=5), until=10)[0] == 2


def test_batches_shorter_than_half_of_the_shortest_window_cost_no_reading():
    harness = LogReaderHarness(a=MemoryCheckpoint([4], [4]))
    for at in range(600):
        assert harness.read(hung("a", batch=5 + at // 25), at=float(at)).logs == {}

    assert harness.storage.opened == ["a"]


def test_slow_batches_of_equal_length_cost_no_reading_after_the_first():
    harness = LogReaderHarness(a=MemoryCheckpoint([4], [4]))
    for at in range(600):
        assert bool(harness.read(hung("a", batch=5 + at // 120), at=float(at)).logs) <= (at < 120)

    assert harness.storage.opened == ["a", "a"]


def test_log_of_a_batch_that_hangs_for_hours_is_read_four_times_a_minute():
    checkpoint = MemoryCheckpoint([4, 5], [4])
    read = moments_read(LogReaderHarness(a=checkpoint), hung("a", batch=5), until=7200)

    assert set(rests(read[-100:])) == {15}
    assert sorted(rests(read)) == rests(read)
    assert checkpoint.questions()["has"] < 4 * 4 * 130


def test_growing_log_is_read_at_every_step():
    checkpoint = MemoryCheckpoint([0], [0])
    harness = LogReaderHarness(a=checkpoint)
    for at in range(100):
        checkpoint.commit(at)
        assert harness.read(continuous("a"), at=float(at)).logs == {"a-1": LoggedBatches(at, at)}


def test_commit_is_seen_within_a_tenth_of_the_time_it_took():
    checkpoint = MemoryCheckpoint([0], [0])
    harness = LogReaderHarness(a=checkpoint)
    for last, commit in itertools.pairwise((0, 20, 25, 65, 165)):
        for at in range(last, commit):
            harness.read(continuous("a"), at=float(at))
        checkpoint.commit(commit)
        seen = next(
            at for at in itertools.count(commit) if harness.read(continuous("a"), at=float(at)).logs
        )
        assert seen - commit <= 1 + (commit - last) / 10


def test_log_that_grows_again_after_hours_is_read_at_every_step():
    checkpoint = MemoryCheckpoint([0], [0])
    harness = LogReaderHarness(a=checkpoint)
    moments_read(harness, continuous("a"), until=3600)
    checkpoint.commit(1)
    at = next(at for at in range(3600, 3616) if harness.read(continuous("a"), at=float(at)).logs)

    assert [bool(harness.read(continuous("a"), at=at + n).logs) for n in range(1, 6)] == [True] * 5


def test_new_batch_of_async_progress_tracking_is_read_at_once_even_after_hours():
    harness = LogReaderHarness(a=MemoryCheckpoint([0], [0]))
    read = moments_read(harness, asynchronous("a", batch=1), until=3601)
    at = read[-1] + 1.0

    assert harness.read(asynchronous("a", batch=1), at=at).logs == {}
    assert set(harness.read(asynchronous("a", batch=2), at=at + 1).logs) == {"a-1"}
    assert set(harness.read(asynchronous("a", batch=2), at=at + 2).logs) == {"a-1"}


@pytest.mark.parametrize(("floor", "longest"), [(60, 15), (20, 5), (6, 2), (3600, 15)])
def test_log_is_read_often_enough_for_the_shortest_window(floor, longest):
    harness = LogReaderHarness(floor=floor, a=MemoryCheckpoint([0], [0]))

    assert max(rests(moments_read(harness, continuous("a"), until=3600))) == longest


class Watched(LogReaderHarness):
    """A harness whose reports reach the rules, as the probe's do."""

    def __init__(self, floor, **checkpoints):
        super().__init__(floor=floor, **checkpoints)
        self.story = Story()
        self.limits = {"stall_floor_seconds": floor, "start_grace_seconds": floor}

    def alerts(self, seen, *, at):
        report = self.read(seen, at=at)
        self.story.probe(seen, at=at)
        self.story.state.apply_commit_log(report)
        evaluation = self.story.evaluate(at, probe_expected=True, **self.limits)
        return [finding.alertname for finding in evaluation.findings]


@pytest.mark.parametrize("floor", [4.0, 60.0])
def test_log_at_rest_does_not_count_as_unreadable(floor):
    harness = Watched(floor, a=MemoryCheckpoint([4], [4]))

    assert not any(harness.alerts(asynchronous("a", batch=5), at=float(at)) for at in range(1000))


@pytest.mark.parametrize("floor", [4.0, 60.0])
def test_stopped_epochs_are_reported_at_most_a_tenth_of_the_window_late(floor):
    checkpoint = MemoryCheckpoint([0], [0])
    harness = Watched(floor, a=checkpoint)
    for at in range(100):
        checkpoint.commit(at)
        assert harness.alerts(continuous("a"), at=float(at)) == []
    fired = next(at for at in itertools.count(100) if harness.alerts(continuous("a"), at=float(at)))

    assert floor < fired - 99 <= 1.1 * floor + 2


# -- selection of runs, and errors ----------------------------------------------------------------


def test_run_that_is_no_longer_chosen_is_dropped():
    a = MemoryCheckpoint([0], [0])
    harness = LogReaderHarness(a=a)
    harness.read(continuous("a"), at=1)
    assert harness.read(replace(continuous("a"), active=False), at=2) == LogReport(2)
    a.questions()

    assert harness.read(continuous("a"), at=3).logs == {"a-1": LoggedBatches(0, 0)}
    assert a.questions()["list"] == 2


def test_next_run_on_a_checkpoint_is_read_from_the_start():
    a = MemoryCheckpoint([0, 1, 2], [0, 1])
    harness = LogReaderHarness(a=a)
    harness.read(continuous("a"), at=1)
    a.purge(below=1000)
    a.commit(0)

    assert harness.read(continuous("a", number=2), at=2).logs == {"a-2": LoggedBatches(0, 0)}


def test_unreadable_storage_does_not_block_the_others():
    broken, fine = MemoryCheckpoint([0], [0]), MemoryCheckpoint([0], [0])
    harness = LogReaderHarness(a=broken, c=fine)
    broken.refusal = "FileSystem closed"

    report = harness.read(continuous("a"), continuous("lost"), continuous("c"), at=1)

    assert report.logs == {"c-1": LoggedBatches(0, 0)}
    assert report.unreadable == {"a-1": "FileSystem closed", "lost-1": "No FileSystem for lost"}


def test_unreadable_storage_is_retried_only_after_a_while():
    broken = MemoryCheckpoint([0], [0])
    harness = LogReaderHarness(a=broken)
    broken.refusal = "FileSystem closed"
    harness.read(continuous("a"), at=0)
    broken.questions()
    broken.refusal = ""

    report = harness.read(continuous("a"), at=RETRY_SECONDS - 0.1)
    assert (report.logs, report.unreadable) == ({}, {"a-1": "FileSystem closed"})
    assert broken.questions() == {"list": 0, "has": 0}
    report = harness.read(continuous("a"), at=RETRY_SECONDS)
    assert (report.logs, report.unreadable) == ({"a-1": LoggedBatches(0, 0)}, {})


def test_storage_error_is_logged_once_until_it_ends(caplog):
    broken = MemoryCheckpoint([0], [0])
    harness = LogReaderHarness(a=broken)
    broken.refusal = "FileSystem closed"
    with caplog.at_level(logging.WARNING):
        for at in range(0, 100, 5):
            harness.read(continuous("a"), at=at)
        assert [record.message for record in caplog.records] == [
            "querypulse: cannot read the checkpoint of a: FileSystem closed"
        ]
        broken.refusal = ""
        harness.read(continuous("a"), at=200)
        broken.refusal = "FileSystem closed"
        harness.read(continuous("a"), at=220)

    assert len(caplog.records) == 2


class HangingCheckpoint(MemoryCheckpoint):
    """A storage that does not answer until released."""

    def __init__(self):
        super().__init__([0], [0])
        self.asked_at = threading.Event()
        self.answers = threading.Event()

    def ids(self, log):
        self.asked_at.set()
        assert self.answers.wait(PATIENCE_SECONDS)
        return super().ids(log)


@pytest.fixture
def reading():
    """A reader in its own thread; stopped afterwards."""
    stop = []

    def start(checkpoint, interval=LONG_SECONDS):
        report = ProbeReport(began_at=0, at=0, runs=(continuous("a"),))
        storage = MemoryStorage(a=checkpoint)
        reader = LogReader(storage.open, lambda: report, lambda: None, interval_seconds=interval)
        loop = Loop("commit_log", reader.step, Guard())
        loop.start()
        stop.append((loop, reader))
        return reader

    yield start
    for loop, reader in stop:
        loop.stop()
        reader.poke()
        assert loop.join(PATIENCE_SECONDS)


def test_poke_ends_the_pause(reading):
    reader = reading(MemoryCheckpoint([0], [0]))
    first = until(lambda: reader.latest, "the first report")
    reader.poke()
    until(lambda: reader.latest is not first, "the second report")


def test_hanging_storage_lets_the_last_report_grow_old(reading):
    checkpoint = HangingCheckpoint()
    reader = reading(checkpoint)
    assert checkpoint.asked_at.wait(PATIENCE_SECONDS)
    assert reader.latest is None
    released_at = time.monotonic()
    checkpoint.answers.set()
    report = until(lambda: reader.latest, "the report")

    assert report.at <= released_at
    assert report.logs == {"a-1": LoggedBatches(0, 0)}


def test_next_reading_waits_for_the_interval():
    report = ProbeReport(began_at=0, at=0, runs=())
    reader = LogReader(
        MemoryStorage().open, lambda: report, lambda: None, interval_seconds=LONG_SECONDS
    )
    pauses = []
    reader._poked.wait = pauses.append
    reader.step()

    assert pauses == [LONG_SECONDS]
