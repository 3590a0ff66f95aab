"""The commit-log reader names what it read and what it could not, and waits for nobody's sake."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from msgspec.structs import replace
from support.clock import Clock
from support.queries import until
from support.storage import MemoryCheckpoint, MemoryStorage
from support.story import processing, run

from querypulse.listener.commit_log import LoggedBatches, LogReport
from querypulse.listener.guard import Guard
from querypulse.listener.log_reader import RETRY_SECONDS, LogReader
from querypulse.listener.loop import Loop
from querypulse.listener.probing import ProbeReport

PATIENCE_SECONDS = 10.0
LONG_SECONDS = 3600.0


def continuous(query, number=1):
    seen = run(query, number, trigger="ContinuousTrigger(1000)", message="Running")
    return replace(seen, facts=replace(seen.facts, checkpoint=query))


class Desk:
    """A reader on a fake clock, and what the probe is made to report to it."""

    def __init__(self, **checkpoints):
        self.storage = MemoryStorage(**checkpoints)
        self.clock = Clock()
        self.probe = None
        self.announced = []
        self.reader = LogReader(
            self.storage.open,
            lambda: self.probe,
            lambda: self.announced.append(self.reader.latest),
            interval_seconds=0,
            clock=self.clock,
        )

    def read(self, *runs, at) -> LogReport:
        self.clock.now = at
        self.probe = ProbeReport(began_at=at, at=at, runs=runs)
        self.reader.step()
        return self.reader.latest


def test_before_the_first_probe_nothing_is_read():
    desk = Desk(a=MemoryCheckpoint())
    assert desk.reader.latest is None
    desk.clock.now = 7.0
    desk.reader.step()

    assert desk.reader.latest == LogReport(7.0)
    assert desk.announced == [LogReport(7.0)]


def test_every_run_that_needs_it_is_in_every_report():
    desk = Desk(a=MemoryCheckpoint([0, 1], [0]), b=MemoryCheckpoint())

    for at in (1, 2):
        report = desk.read(continuous("a"), continuous("b"), at=at)
        assert report.at == at
        assert report.logs == {"a-1": LoggedBatches(1, 0), "b-1": LoggedBatches()}
        assert report.unreadable == {}
    assert desk.announced[-1] is report
    assert desk.storage.opened == ["a", "b"]


def test_a_run_that_needs_no_log_costs_the_storage_nothing():
    desk = Desk()

    assert desk.read(run(), processing("b", batch=5), at=1) == LogReport(1)
    assert desk.storage.opened == []


def test_a_run_no_longer_asked_for_is_forgotten():
    a = MemoryCheckpoint([0], [0])
    desk = Desk(a=a)
    desk.read(continuous("a"), at=1)
    assert desk.read(replace(continuous("a"), active=False), at=2) == LogReport(2)
    a.questions()

    assert desk.read(continuous("a"), at=3).logs == {"a-1": LoggedBatches(0, 0)}
    assert a.questions()["list"] == 2


def test_the_next_run_of_a_checkpoint_is_read_afresh():
    a = MemoryCheckpoint([0, 1, 2], [0, 1])
    desk = Desk(a=a)
    desk.read(continuous("a"), at=1)
    a.purge(below=1000)
    a.commit(0)

    assert desk.read(continuous("a", number=2), at=2).logs == {"a-2": LoggedBatches(0, 0)}


def test_a_storage_that_refuses_keeps_no_other_from_being_read():
    broken, fine = MemoryCheckpoint([0], [0]), MemoryCheckpoint([0], [0])
    desk = Desk(a=broken, c=fine)
    broken.refusal = "FileSystem closed"

    report = desk.read(continuous("a"), continuous("lost"), continuous("c"), at=1)

    assert report.logs == {"c-1": LoggedBatches(0, 0)}
    assert report.unreadable == {"a-1": "FileSystem closed", "lost-1": "No FileSystem for lost"}


def test_a_storage_that_refuses_is_asked_again_after_a_while_only():
    broken = MemoryCheckpoint([0], [0])
    desk = Desk(a=broken)
    broken.refusal = "FileSystem closed"
    desk.read(continuous("a"), at=0)
    broken.questions()
    broken.refusal = ""

    report = desk.read(continuous("a"), at=RETRY_SECONDS - 0.1)
    assert (report.logs, report.unreadable) == ({}, {"a-1": "FileSystem closed"})
    assert broken.questions() == {"list": 0, "has": 0}
    report = desk.read(continuous("a"), at=RETRY_SECONDS)
    assert (report.logs, report.unreadable) == ({"a-1": LoggedBatches(0, 0)}, {})


def test_a_refusal_is_logged_once_until_it_is_over(caplog):
    broken = MemoryCheckpoint([0], [0])
    desk = Desk(a=broken)
    broken.refusal = "FileSystem closed"
    with caplog.at_level(logging.WARNING):
        for at in range(0, 100, 5):
            desk.read(continuous("a"), at=at)
        assert [record.message for record in caplog.records] == [
            "querypulse: cannot read the checkpoint of a: FileSystem closed"
        ]
        broken.refusal = ""
        desk.read(continuous("a"), at=200)
        broken.refusal = "FileSystem closed"
        desk.read(continuous("a"), at=201)

    assert len(caplog.records) == 2


class Hanging(MemoryCheckpoint):
    """A storage that does not answer until it is let go."""

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
    """A reader in its thread; afterwards it is stopped."""
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


def test_a_poke_ends_the_rest(reading):
    reader = reading(MemoryCheckpoint([0], [0]))
    first = until(lambda: reader.latest, "the first report")
    reader.poke()
    until(lambda: reader.latest is not first, "the second report")


def test_a_storage_that_hangs_leaves_the_last_report_to_grow_old(reading):
    checkpoint = Hanging()
    reader = reading(checkpoint)
    assert checkpoint.asked_at.wait(PATIENCE_SECONDS)
    assert reader.latest is None
    let_go_at = time.monotonic()
    checkpoint.answers.set()
    report = until(lambda: reader.latest, "the report")

    assert report.at <= let_go_at
    assert report.logs == {"a-1": LoggedBatches(0, 0)}


def test_the_next_reading_waits_for_its_time(reading):
    checkpoint = MemoryCheckpoint([0], [0])
    began = time.monotonic()
    reader = reading(checkpoint, interval=0.05)
    first = until(lambda: reader.latest, "the first report")
    until(lambda: reader.latest is not first, "the second report")

    assert time.monotonic() - began >= 0.05
