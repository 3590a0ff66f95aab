"""The source reader polls the right sources at the right interval and never blocks."""

from __future__ import annotations

import logging
import time

import pytest
from support.patience import Clock
from support.story import CONFLICT, Story, processing, run

from querypulse.core.guard import Guard
from querypulse.listener.events import Started
from querypulse.listener.probe_report import Context
from querypulse.listener.source_polls import (
    SourceError,
    SourcePoll,
    SourceReport,
    SourceSilentError,
    StoreSilentError,
)
from querypulse.listener.sources.reader import MAX_DEAD_RUNS, SourceReader

INTERVAL = 15.0


class FakeSource:
    """Answers with the number of polls, or raises ``error``."""

    def __init__(self, clock, address="broker:9092") -> None:
        self.address = address
        self.clock = clock
        self.asked: list[float] = []
        self.error: Exception | None = None
        self.takes = 0.0
        self.closed = 0
        self.written_since = None

    def poll(self, written_since=None):
        self.asked.append(self.clock.now)
        self.written_since = written_since
        self.clock.now += self.takes
        if self.error is not None:
            raise self.error
        return SourcePoll("Kafka", {"t/0": len(self.asked)}, {}, {}, at=self.clock.now)

    def close(self):
        self.closed += 1


class SourceReaderHarness:
    """A reader on a fake clock, the story with its runs, and their sources by run id."""

    def __init__(self, *queries):
        self.clock = Clock()
        self.story = Story()
        self.sources = {}
        self.announced = []
        self.released = []
        self.is_closed = False
        self.guard = Guard()
        self.reader = SourceReader(
            self,
            lambda: self.story.state.snapshot(self.clock.now),
            lambda: self.announced.append(self.reader.latest),
            self.guard,
            interval_seconds=INTERVAL,
            find_every_seconds=0,
            clock=self.clock,
        )
        for name in queries:
            self.begin(name)

    def begin(self, name, number=1, **fields):
        self.story.started(name, number, at=self.clock.now)
        source = FakeSource(self.clock, **fields)
        self.sources[f"{name}-{number}"] = {0: source}
        return source

    def source(self, name):
        return self.sources[f"{name}-1"][0]

    def open(self, query):
        opened = self.sources.get(query.run.run_id)
        if isinstance(opened, Exception):
            raise opened
        return opened

    def release(self, run_id):
        self.released.append(run_id)

    def close(self):
        self.is_closed = True

    def step(self, *, at):
        self.clock.now = at
        self.reader.step()
        return self.reader.latest


def test_no_query_polls_no_source():
    harness = SourceReaderHarness()

    assert harness.step(at=1) is None
    assert harness.announced == []


def test_new_run_is_polled_at_once_and_then_every_interval():
    harness = SourceReaderHarness("a")
    harness.begin("without sources")
    harness.sources["without sources-1"] = {}
    for at in range(1, 40):
        harness.step(at=at)

    assert harness.source("a").asked == [1, 16, 31]
    assert len(harness.announced) == 3
    newest = SourcePoll("Kafka", {"t/0": 3}, {}, {}, at=31)
    assert harness.reader.latest == SourceReport(31, {"a-1": {0: newest}})


def test_sources_that_spark_does_not_show_yet_are_searched_while_the_run_is_active():
    harness = SourceReaderHarness("a", "dead")
    sources = harness.sources
    harness.sources = {}
    harness.story.ended("dead", at=1, exception=CONFLICT)
    assert harness.step(at=2) is None
    harness.sources = sources

    assert set(harness.step(at=3).polls) == {"a-1"}


@pytest.mark.parametrize("how", ["failed", "vanished", "hung"])
def test_unexpectedly_ended_run_is_still_polled(how):
    harness = SourceReaderHarness("a")
    source = harness.source("a")
    harness.step(at=1)
    if how == "failed":
        harness.story.ended("a", at=2, exception=CONFLICT)
    elif how == "vanished":
        harness.story.probe(at=2)
    else:
        harness.story.probe(processing("a", batch=3), at=2)
    harness.step(at=100)

    assert source.asked == [1, 100]
    assert not source.closed


@pytest.mark.parametrize("how", ["stopped", "completed", "replaced", "driver stopped"])
def test_finished_run_is_released(how):
    harness = SourceReaderHarness("a")
    source = harness.source("a")
    harness.step(at=1)
    if how == "replaced":
        harness.begin("a", 2)
    elif how == "driver stopped":
        harness.story.probe(at=2, context=Context.STOPPED_BY_APPLICATION)
    else:
        trigger = "OneTimeTrigger" if how == "completed" else "ProcessingTimeTrigger(0)"
        harness.story.probe(run("a", trigger=trigger, active=False), at=2)
    report = harness.step(at=3)

    assert (source.asked, source.closed) == ([1], 1)
    assert "a-1" not in report.polls
    harness.step(at=100)
    assert source.asked == [1]


def test_refusing_source_keeps_its_last_poll_and_is_polled_again_after_two_intervals():
    harness = SourceReaderHarness("a", "b")
    broken = harness.source("a")
    first = harness.step(at=1).polls["a-1"]
    broken.error = SourceError("not allowed")
    report = harness.step(at=16)
    assert (report.polls["a-1"], report.polls["b-1"][0].at) == (first, 16)
    assert report.unreadable == {"a-1": "not allowed"}
    broken.error = None
    for at in range(17, 60):
        harness.step(at=at)

    assert broken.asked == [1, 16, 46]
    assert harness.reader.latest.unreadable == {}


def test_silent_broker_costs_one_timeout_for_all_its_queries_and_is_retried():
    harness = SourceReaderHarness(*"abcde")
    other = harness.begin("z", address="elsewhere:9092")
    silent = [harness.source(name) for name in "abcde"]
    for source in silent:
        source.error, source.takes = SourceSilentError("no answer"), 4.0
    report = harness.step(at=1)

    assert [len(source.asked) for source in silent] == [1, 0, 0, 0, 0]
    assert report.unreadable == {f"{name}-1": "no answer" for name in "abcde"}
    assert (other.asked, set(report.polls)) == ([5], {"z-1"})
    for source in silent:
        source.error, source.takes = None, 0.0
    for at in range(6, 40):
        harness.step(at=at)
    assert [source.asked for source in silent] == [[1, 35], *[[35]] * 4]
    assert harness.reader.latest.unreadable == {}


def test_source_whose_store_is_held_by_another_poll_is_tried_in_each_step_until_it_answers():
    harness = SourceReaderHarness("a", "b")
    held = harness.source("a")
    held.error = StoreSilentError("file:/mnt does not answer")
    for at in range(1, 4):
        report = harness.step(at=at)
    assert held.asked == [1, 2, 3]
    assert report.unreadable == {"a-1": "file:/mnt does not answer"}
    held.error = None
    for at in range(4, 20):
        harness.step(at=at)

    assert held.asked == [1, 2, 3, 4, 19]
    assert harness.source("b").asked == [1, 16]
    assert harness.reader.latest.unreadable == {}


@pytest.mark.contains_errors
@pytest.mark.parametrize("error", [AttributeError("get"), ValueError("5d"), LookupError("catalog")])
def test_bug_in_a_poll_is_counted_once_until_it_is_over_and_holds_up_no_other_source(error):
    harness = SourceReaderHarness("a", "b")
    broken = harness.source("a")
    broken.error = error
    report = harness.step(at=1)

    reason = f"internal error: {type(error).__name__}"
    assert report.unreadable == {"a-1": reason}
    assert set(report.polls) == {"b-1"}
    for at in range(2, 40):
        harness.step(at=at)
    assert (broken.asked, harness.guard.errors) == ([1, 31], {"sources": 1})
    broken.error = None
    harness.step(at=61)
    assert harness.reader.latest.unreadable == {}
    broken.error = error
    harness.step(at=76)
    assert harness.guard.errors == {"sources": 2}


@pytest.mark.contains_errors
def test_bug_in_the_search_for_sources_holds_up_no_other_run():
    harness = SourceReaderHarness("a", "b")
    harness.sources["a-1"] = ValueError("secret")
    for at in range(1, 40):
        report = harness.step(at=at)

    assert report.unreadable == {"a-1": "internal error: ValueError"}
    assert set(report.polls) == {"b-1"}
    assert harness.guard.errors == {"sources": 1}


def test_refusal_is_logged_once_until_it_ends(caplog):
    harness = SourceReaderHarness("a")
    source = harness.source("a")
    with caplog.at_level(logging.WARNING):
        for error in (SourceError("one"), SourceError("two"), None, SourceError("three")):
            source.error = error
            harness.step(at=harness.clock.now + 2 * INTERVAL)

    assert [record.getMessage() for record in caplog.records] == [
        "querypulse: cannot ask the sources of a: one",
        "querypulse: cannot ask the sources of a: three",
    ]


def test_failed_search_for_sources_is_reported_and_retried():
    harness = SourceReaderHarness("a", "b")
    sources, harness.sources["a-1"] = harness.sources["a-1"], SourceError("no such field")

    assert harness.step(at=1).unreadable == {"a-1": "no such field"}
    harness.sources["a-1"] = sources
    report = harness.step(at=1 + 2 * INTERVAL)
    assert report.unreadable == {}
    assert set(report.polls) == {"a-1", "b-1"}


def test_ended_run_and_at_the_close_every_run_is_released_with_its_sources():
    harness = SourceReaderHarness("a", "b", "c")
    sources = [harness.source(name) for name in "bc"]
    harness.sources["a-1"] = None
    harness.step(at=1)
    harness.story.ended("a", at=2)
    harness.step(at=3)
    assert harness.released == ["a-1"]
    harness.reader.close()

    assert harness.released == ["a-1", "b-1", "c-1"]
    assert [source.closed for source in sources] == [1, 1]


def test_every_run_is_polled_in_each_interval_however_many_there_are():
    names = [f"q{number}" for number in range(150)]
    harness = SourceReaderHarness(*names)
    for at in range(1, 40):
        harness.step(at=at)

    assert {len(harness.source(name).asked) for name in names} == {3}


def test_polls_that_take_long_leave_half_of_the_time_free():
    """Each round takes 40 s, so the sources are polled every 80 s."""
    harness = SourceReaderHarness("a", "b")
    sources = [harness.source(name) for name in "ab"]
    for source in sources:
        source.takes = 20.0
    for at in range(1, 400, 5):
        if at >= harness.clock.now:
            harness.step(at=at)

    assert [len(source.asked) for source in sources] == [5, 5]


def test_only_the_newest_dead_runs_are_polled():
    """Spark's objects of the others can be collected."""
    harness = SourceReaderHarness("alive", *(f"q{number}" for number in range(MAX_DEAD_RUNS + 1)))
    harness.step(at=1)
    for number in range(MAX_DEAD_RUNS + 1):
        harness.story.ended(f"q{number}", at=2 + number, exception=CONFLICT)
    for at in range(1000, 1040):
        report = harness.step(at=at)

    assert set(report.polls) == set(harness.sources) - {"q0-1"}
    assert (harness.source("q0").closed, harness.released) == (1, ["q0-1"])


def test_dead_query_keeps_its_newest_poll_until_a_new_run_starts():
    story = Story().started(at=0).ask(at=1, committed=5, latest=5)
    story.ended(at=2, exception=CONFLICT).ask(at=20, committed=5, latest=50)
    assert story.query().checkpoint.polls[0].lag_offsets == 45
    story.started("a", 2, at=30)

    assert story.query().checkpoint.polls == {}


def test_source_is_asked_what_was_written_after_the_checkpoint_before_was_no_longer_read():
    """Only where its position is not exact: here, a commit was seen whose event is missing."""
    harness = SourceReaderHarness("a", "b")
    for name in ("a", "b"):
        harness.story.ask(name, at=1, committed=5).commit(name, batch=0, at=2)
    harness.story.probe(run("a", batch=7), run("b", batch=1), at=3)
    for name in ("a", "b"):
        harness.story.ended(name, at=4)
        harness.story.state.apply_event(Started(f"new-{name}", f"{name}-2", name), 5)
        harness.sources[f"{name}-2"] = {0: FakeSource(harness.clock)}
    harness.step(at=6)

    asked = [harness.sources[f"{name}-2"][0].written_since for name in ("a", "b")]
    assert asked == [pytest.approx(4 - time.monotonic() + time.time(), abs=1), None]
