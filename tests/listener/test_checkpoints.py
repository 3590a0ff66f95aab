"""Checkpoints: which logs are read and when, where a run began, and places that are lost."""

from __future__ import annotations

import itertools
import logging
import re
import threading

import pytest
from msgspec.structs import replace
from support.patience import PATIENCE_SECONDS, Clock, until
from support.published_states import published
from support.story import Story, processing, run

from querypulse.exporter.status import status
from querypulse.listener.checkpoints import (
    RETRY_SECONDS,
    SINK_SECONDS,
    LogReader,
    checkpoint_problem,
)
from querypulse.listener.commit_log import (
    CLOCKS_DIFFER_SECONDS,
    COMMITS,
    OFFSETS,
    SINK_LOG,
    LoggedBatches,
    LogReport,
    SinkLog,
    StartingPoint,
    StorageError,
    Written,
    sink_log,
    starting_point,
)
from querypulse.listener.probe_report import JobActivity, ProbeReport
from querypulse.listener.spark.jvm import REASON_CHARACTERS, reason_of
from querypulse.listener.spark.storage import ids_in, times_in


class MemoryCheckpoint:
    """The files of both logs, each with the Unix seconds when it was written, and every call."""

    def __init__(self, offsets=(), commits=()) -> None:
        self.logs = {OFFSETS: _timed(offsets), COMMITS: _timed(commits)}
        self.asked = 0
        self.refusal = ""
        self.initial = {}
        self.asked_for_begin = 0

    def begins(self):
        self.asked_for_begin += 1
        return self.initial

    def files(self, log):
        self.asked += 1
        if self.refusal:
            raise StorageError(self.refusal)
        return self.logs[log]

    def plan(self, *batches):
        self.logs[OFFSETS] |= dict.fromkeys(batches)

    def commit(self, *batches):
        self.plan(*batches)
        self.logs[COMMITS] |= dict.fromkeys(batches)


def _timed(batches):
    return dict(batches) if isinstance(batches, dict) else dict.fromkeys(batches)


class MemoryStorage:
    """Opens checkpoints by their location; records each location."""

    def __init__(self, **checkpoints) -> None:
        self.checkpoints = checkpoints
        self.opened: list[str] = []

    def open(self, location, query_id):
        self.opened.append(location)
        if location not in self.checkpoints:
            raise StorageError(f"No FileSystem for {location}")
        return self.checkpoints[location]


def with_facts(run, **facts):
    return replace(run, facts=replace(run.facts, **facts))


def continuous(query):
    seen = run(query, trigger="ContinuousTrigger(1000)", message="Running")
    return with_facts(seen, checkpoint=query)


class LogReaderHarness:
    """A reader on a fake clock, with scripted probe reports."""

    def __init__(self, floor=60.0, patience=PATIENCE_SECONDS, **checkpoints):
        self.storage = MemoryStorage(**checkpoints)
        self.clock = Clock()
        self.probe = None
        self.ahead = 0.0
        """How far the wall clock is ahead of the monotonic one."""
        self.announced = []
        self.reader = LogReader(
            self.storage.open,
            lambda: self.probe,
            lambda: self.announced.append(self.reader.latest),
            stall_floor_seconds=floor,
            interval_seconds=0,
            sink_patience_seconds=patience,
            clock=self.clock,
            wall=lambda: self.clock.now + self.ahead,
        )

    def read(self, *runs, at) -> LogReport:
        self.clock.now = at
        self.probe = ProbeReport(began_at=at, at=at, runs=runs)
        self.reader.step()
        return self.reader.latest


WALL = 1_800_000_000.0

# -- names in a listing -----------------------------------------------------------------------


def listing(*names, folder="file:/cp/offsets"):
    return f"Array({', '.join(f'{folder}/{name}' for name in names)})"


NAMES = ["0", ".0.crc", "10", ".1.1b.tmp", "9.tmp", "-1", "007x", "a1", "1a", "٣", "2.compact", "100", "99"]  # fmt: skip


@pytest.mark.parametrize(
    "folder",
    [
        "file:/cp/offsets",
        "file:/data/a b, c/offsets",
        "s3a://bucket/7, 8/offsets",
        "abfss://c@account.dfs.core.windows.net/a%20b/12/offsets",
        "file:/x(1)/commits/5)/offsets",
        "hdfs://host:8020/commits/5, /offsets",
    ],
)
def test_only_names_of_digits_in_the_logs_own_folder_are_batches(folder):
    assert ids_in(listing(*NAMES, folder=folder), "offsets") == [0, 10, 100, 99]
    assert ids_in("Array()", "offsets") == []


def test_listing_gives_only_the_times_of_batches():
    listing = (
        "Array(LocatedFileStatus{path=file:/c;p/offsets/9; isDirectory=false; length=5; replication=1;"
        " blocksize=33554432; modification_time=1700000009500; access_time=1700000009000; owner=; group=;"
        " permission=rw-rw-rw-; isSymlink=false; hasAcl=false; isEncrypted=false; isErasureCoded=false},"
        " DeprecatedRawLocalFileStatus{path=s3a://b/cp/offsets/10; isDirectory=false; length=5;"
        " modification_time=1700000010000; access_time=0; owner=me},"
        " FileStatus{path=file:/cp/offsets/.10.tmp; isDirectory=false; length=5; modification_time=1700000011000;"
        " access_time=0})"
    )

    assert times_in(listing) == {9: 1_700_000_009.5, 10: 1_700_000_010.0}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "An error occurred while calling o224.listStatus.\n"
            ": java.io.IOException: Filesystem closed\n\tat org.apache.hadoop.hdfs.DFSClient",
            "java.io.IOException: Filesystem closed",
        ),
        ("Can not create a Path from an empty string\n\nJVM stacktrace:\njava.lang",
         "Can not create a Path from an empty string"),
        ("", "OSError"),
    ],
    ids=["Py4J's form", "PySpark's form", "empty"],
)  # fmt: skip
def test_reason_is_the_java_exceptions_own_line(text, reason):
    assert reason_of(OSError(text)) == reason


def test_reason_is_short_and_holds_no_secret():
    text = f": java.io.IOException: GET https://a.blob/cp?sig=hunter2&se={'1' * 1000}\n\tat x"

    assert "hunter2" not in reason_of(OSError(text))
    assert len(reason_of(OSError(text))) <= REASON_CHARACTERS


# -- which logs are read ---------------------------------------------------------------------


CONTINUOUS = run(trigger="ContinuousTrigger(1000)", message="Running")
PLANNING = "Getting offsets from KafkaV2[Subscribe[a]]"
STALL_SECONDS = 20.0


def is_read(*stages):
    """Whether a run's log is read at the last of several (seconds, probe view) pairs."""
    checkpoints = {"/cp": MemoryCheckpoint([5], [4]), "file:/tmp/temporary-1": MemoryCheckpoint()}
    harness = LogReaderHarness(2 * STALL_SECONDS, **checkpoints)
    reports = [harness.read(seen, at=at) for at, seen in stages]
    return bool(reports[-1].logs)


RUNS = {
    "continuous": (CONTINUOUS, True),
    "async": (with_facts(run(), async_progress=True), True),
    "real-time": (with_facts(run(trigger="RealTimeTrigger(300000)"), async_progress=True), True),
    "temporary": (with_facts(CONTINUOUS, checkpoint="file:/tmp/temporary-1"), True),
    "idle": (run(), False),
    "waiting": (run(batch=7, data=True), False),
    "busy": (processing(batch=5), False),
    "busy, polled closely": (processing(batch=5, tasks=0), False),
    "finite": (run(trigger="AvailableNowTrigger", message="Processing new data", busy=True), False),
    "planning": (run(message=PLANNING, busy=True, tasks=0), False),
    "dead continuous": (replace(CONTINUOUS, active=False), False),
    "unknown place": (with_facts(CONTINUOUS, checkpoint=""), False),
    "unknown place, async": (with_facts(run(), async_progress=True, checkpoint=""), False),
}  # fmt: skip


@pytest.mark.parametrize(("seen", "expected"), RUNS.values(), ids=RUNS)
def test_log_is_read_at_once_only_of_a_run_whose_commits_it_alone_shows(seen, expected):
    assert is_read((0, seen)) is expected


FIFTH, SIXTH = (processing(batch=batch, tasks=0) for batch in (5, 6))
PLANS = run(message=PLANNING, busy=True, tasks=0)
NO_IDS = processing(batch=None, tasks=0)
SLOW = (0, FIFTH), (60, FIFTH), (100, run(batch=6)), (110, SIXTH)


HISTORIES = {
    "a batch": ([(0, FIFTH), (STALL_SECONDS, FIFTH)], True),
    "a shorter batch": ([(0, FIFTH), (STALL_SECONDS - 0.1, FIFTH)], False),
    "planning": ([(0, PLANS), (STALL_SECONDS, PLANS)], True),
    "shorter planning": ([(0, PLANS), (STALL_SECONDS - 0.1, PLANS)], False),
    "without known batch ids": ([(0, NO_IDS), (STALL_SECONDS, NO_IDS)], True),
    "although its tasks finish": ([(at, processing(batch=5, tasks=tasks)) for at, tasks in ((0, 1), (10, 2), (STALL_SECONDS, 3))], True),
    "the next batch": ([(0, FIFTH), (15, SIXTH), (35, SIXTH)], True),
    "the next batch, shorter": ([(0, FIFTH), (15, SIXTH), (30, SIXTH)], False),
    "a slow one": (SLOW[:2], True),
    "after a slow one": ([*SLOW, (210, SIXTH)], True),
    "after a slow one, shorter": ([*SLOW, (209, SIXTH)], False),
    "with a pause in between": ([(0, FIFTH), (10, run(batch=5)), (15, FIFTH), (30, FIFTH)], False),
    "its jobs are not examined": ([(0, processing(batch=5)), (100, processing(batch=5))], False),
    "it has ended": ([(0, FIFTH), (100, replace(FIFTH, active=False, work=JobActivity()))], False),
    "the next run": ([(0, processing("a", 1, batch=5, tasks=0)), (100, processing("a", 2, batch=5, tasks=0))], False),
}  # fmt: skip
"""Each step: seconds, and what the probe shows; a batch gets as long as the one before it."""


@pytest.mark.parametrize(("steps", "expected"), HISTORIES.values(), ids=HISTORIES)
def test_log_of_an_ordinary_run_is_read_while_its_batch_is_close_to_a_stall(steps, expected):
    assert is_read(*steps) is expected


# -- when -------------------------------------------------------------------------------------


def test_nothing_is_read_before_the_first_probe():
    harness = LogReaderHarness(a=MemoryCheckpoint())
    assert harness.reader.latest is None
    harness.clock.now = 7.0
    harness.reader.step()

    assert harness.reader.latest == LogReport(7.0)
    assert harness.announced == [LogReport(7.0)]


def test_newest_batches_of_both_logs_are_in_the_report():
    checkpoint = MemoryCheckpoint([0, 1], [0])
    harness = LogReaderHarness(a=checkpoint, b=MemoryCheckpoint())
    for at in range(0, 12, 3):
        report = harness.read(continuous("a"), continuous("b"), at=at)
        assert report == LogReport(at, {"a-1": LoggedBatches(at + 1, at), "b-1": LoggedBatches()})
        checkpoint.commit(at + 3)
        checkpoint.plan(at + 4)

    assert harness.announced[-1] is report
    assert harness.storage.opened == ["a", "b"]


def hung(query, *, batch):
    return with_facts(processing(query, batch=batch, tasks=0), checkpoint=query)


def asynchronous(query, *, batch):
    return with_facts(run(query, batch=batch, async_progress=True), checkpoint=query)


def moments_read(harness, seen, *, until):
    """The seconds at which the run's log is read, with one step a second."""
    return [at for at in range(until) if harness.read(seen, at=float(at)).logs]


@pytest.mark.parametrize(
    ("seconds", "most"), [(25, 0), (120, 120)], ids=["shorter than half a window", "slow ones"]
)
def test_batches_of_equal_length_cost_no_reading_after_the_first(seconds, most):
    checkpoint = MemoryCheckpoint([4], [4])
    harness = LogReaderHarness(a=checkpoint)
    read = [at for at in range(600) if harness.read(hung("a", batch=5 + at // seconds), at=at).logs]

    assert all(at < most for at in read)
    assert bool(read) is bool(most)
    assert checkpoint.asked == 2 * (1 + len(read)), "its start, too"


@pytest.mark.parametrize(("floor", "rest"), [(4, 1), (60, 3), (300, 15), (3600, 15)])
def test_log_is_read_every_twentieth_of_the_shortest_window_of_a_hung_batch_from_its_half(
    floor, rest
):
    since = [(continuous("a"), 0), (asynchronous("a", batch=1), 0), (hung("a", batch=5), floor / 2)]
    for seen, first in since:
        harness = LogReaderHarness(floor=floor, a=MemoryCheckpoint([4, 5], [4]))
        read = moments_read(harness, seen, until=max(400, floor))
        assert read[0] == first
        assert {later - earlier for earlier, later in itertools.pairwise(read)} == {rest}


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


def test_batch_finished_during_the_reading_does_not_look_unfinished():
    class Busy(MemoryCheckpoint):
        """Plans and commits its next batch between any two requests."""

        def files(self, log):
            self.commit(max(self.logs[OFFSETS]) + 1)
            return {**super().files(log)}

    harness = LogReaderHarness(a=Busy(offsets=[0], commits=[0]))
    for at in range(0, 30, 3):
        seen = harness.read(continuous("a"), at=float(at)).logs["a-1"]
        assert seen.planned <= seen.committed


# -- errors -----------------------------------------------------------------------------------


def test_unreadable_storage_is_reported_blocks_no_other_and_is_retried_after_a_while():
    broken, fine = MemoryCheckpoint([0], [0]), MemoryCheckpoint([0], [0])
    harness = LogReaderHarness(a=broken, c=fine)
    broken.refusal = "FileSystem closed"
    runs = continuous("a"), continuous("lost"), continuous("c")
    refused = {"a-1": "FileSystem closed", "lost-1": "No FileSystem for lost"}
    read = LoggedBatches(0, 0)

    report = harness.read(*runs, at=0)
    assert (report.logs, report.unreadable) == ({"c-1": read}, refused)
    broken.refusal, broken.asked = "", 0
    assert harness.read(*runs, at=RETRY_SECONDS - 0.1).unreadable == refused
    assert broken.asked == 0
    report = harness.read(*runs, at=RETRY_SECONDS)
    assert (report.logs["a-1"], report.unreadable.keys()) == (read, {"lost-1"})


def test_storage_error_is_logged_once_until_it_ends(caplog):
    broken = MemoryCheckpoint([0], [0])
    harness = LogReaderHarness(a=broken)
    for at in range(0, 300, 5):
        broken.refusal = "" if at == 200 else "FileSystem closed"
        harness.read(continuous("a"), at=at)

    refused = "querypulse: cannot read the checkpoint of a: FileSystem closed"
    assert warnings(caplog) == [refused] * 2


# -- the log of a file sink -------------------------------------------------------------------


class MemorySink:
    """The log of a file sink, which may hang; records the threads that ask for it."""

    def __init__(self, *batches) -> None:
        self.batches = _timed(batches)
        self.asked = 0
        self.refusal = ""
        self.answers = threading.Event()
        self.answers.set()

    def files(self, log):
        assert log == SINK_LOG
        self.asked += 1
        assert self.answers.wait(PATIENCE_SECONDS)
        if self.refusal:
            raise StorageError(self.refusal)
        return self.batches


def to_files(query, number=1, *, sink="out", **fields):
    seen = run(query, number, sink=f"FileSink[{sink}]", **fields)
    return with_facts(seen, checkpoint=query)


def sinks_read(sink, checkpoint, *runs, until=100):
    """What each reading of the first run's sink shows, one step a second."""
    harness, seen = LogReaderHarness(a=checkpoint, b=MemoryCheckpoint([0], [0]), out=sink), []
    for at in range(until):
        before, report = sink.asked, harness.read(*runs, at=float(at))
        seen += [report.sinks["a-1"]] if sink.asked > before else []
    return seen


def test_log_of_a_file_sink_is_read_once_when_a_run_is_new():
    assert sinks_read(MemorySink(8, 9), MemoryCheckpoint([9], [9]), to_files("a")) == [SinkLog(9)]


@pytest.mark.parametrize(
    "seen",
    [
        with_facts(run("a", sink="DeltaSink[out]"), checkpoint="a"),
        with_facts(run("a"), checkpoint="a"),
        to_files("a", trigger="ContinuousTrigger(1000)"),
        to_files("a", async_progress=True),
    ],
    ids=["Delta", "noop", "continuous", "async progress tracking"],
)
def test_log_of_another_sink_is_not_read(seen):
    assert sinks_read(sink := MemorySink(9), MemoryCheckpoint([0], [0]), seen) == []
    assert sink.asked == 0


def test_log_of_a_sink_is_read_again_while_it_is_ahead_of_the_query():
    sink, checkpoint = MemorySink(9), MemoryCheckpoint()
    harness = LogReaderHarness(a=checkpoint, out=sink)
    readings = {}
    for at in range(100):
        checkpoint.plan(at // 4)
        sink.batches = _timed((max(9, at // 4),))
        readings.setdefault(harness.read(to_files("a"), at=float(at)).sinks["a-1"], at)

    assert readings == {SinkLog(9, skips_to=9): 0, SinkLog(11): 3 * SINK_SECONDS}
    assert sink.asked == 4


def test_log_of_a_sink_is_read_again_while_two_active_runs_write_it():
    sink, checkpoint = MemorySink(9), MemoryCheckpoint([9], [9])
    both = to_files("a"), to_files("b")
    assert len(sinks_read(sink, checkpoint, *both, until=60)) == 4
    ended = to_files("a"), to_files("b", active=False)
    assert len(sinks_read(sink, checkpoint, *ended, until=60)) == 1


def test_log_of_the_sink_of_a_run_that_has_ended_is_read_too():
    ended = to_files("a", active=False)
    assert sinks_read(MemorySink(9), MemoryCheckpoint(), ended) == [SinkLog(9, skips_to=9)]


def test_sink_that_refuses_is_tried_again_and_holds_up_no_checkpoint():
    sink = MemorySink(9)
    sink.refusal = "denied"
    harness = LogReaderHarness(a=MemoryCheckpoint([9], [9]), out=sink)
    report = harness.read(to_files("a"), at=0)
    assert report.sinks == {"a-1": SinkLog(trouble="denied")}
    assert report.starts["a-1"].committed.batch_id == 9
    sink.refusal = ""
    assert harness.read(to_files("a"), at=SINK_SECONDS).sinks == {"a-1": SinkLog(9)}


def test_sink_whose_storage_hangs_holds_up_no_checkpoint_and_no_other_sink():
    hangs, fine = MemorySink(9), MemorySink(9)
    hangs.answers.clear()
    logs = {"a": MemoryCheckpoint([9], [9]), "c": MemoryCheckpoint([9], [9])}
    harness = LogReaderHarness(patience=0.05, **logs, out=hangs, other=fine)

    def sinks(after=2.0):
        at = harness.clock.now + after
        report = harness.read(to_files("a"), to_files("c", sink="other"), at=at)
        assert report.starts.keys() == {"a-1", "c-1"}
        return report.sinks

    assert "a-1" not in sinks(), "it may only be slow"
    until(lambda: sinks().get("c-1") == SinkLog(9), "the other sink is read")
    assert sinks(after=SINK_SECONDS)["a-1"] == SinkLog(trouble="out does not answer")
    assert hangs.asked == 1
    hangs.answers.set()
    until(lambda: sinks()["a-1"] == SinkLog(9), "it answers")
    assert hangs.asked == 1, "the late answer counts"


@pytest.fixture
def dead_store():
    """A harness with eight queries whose sinks are on one store that hangs, and a healthy one."""
    hanging = {f"hdfs://dead/out{number}": MemorySink(9) for number in range(8)}
    for sink in hanging.values():
        sink.answers.clear()
    logs = {name: MemoryCheckpoint([9], [9]) for name in "abcdefgh"}
    healthy = {"z": MemoryCheckpoint([9], [9]), "hdfs://fine/out": MemorySink(9)}
    harness = LogReaderHarness(patience=0.05, **logs, **hanging, **healthy)
    harness.runs = [
        *(to_files(name, sink=sink) for name, sink in zip(logs, hanging, strict=True)),
        to_files("z", sink="hdfs://fine/out"),
    ]
    harness.hanging, harness.logs = list(hanging.values()), list(logs.values())
    yield harness
    for sink in hanging.values():
        sink.answers.set()


def test_store_that_hangs_is_waited_for_once_however_many_sinks_it_has(dead_store):
    for at in range(0, 200, 2):
        report = dead_store.read(*dead_store.runs, at=float(at))
        assert len(report.starts) == 9
        if "z-1" not in report.sinks:
            # This machine is slow: the answer counts later.
            until(lambda: not dead_store.reader._sink_calls.is_held("hdfs://fine"), "it answers")
    assert sum(sink.asked for sink in dead_store.hanging) == 1
    assert report.sinks.pop("z-1") == SinkLog(9)
    assert {bool(sink.trouble) for sink in report.sinks.values()} == {True}
    assert len(report.sinks) == 8
    assert {checkpoint.asked for checkpoint in dead_store.logs} == {2}, "their start is known"


def test_restarted_queries_share_the_one_call_to_a_sink_that_hangs_until_it_answers(dead_store):
    for number in range(1, 4):
        runs = [replace(run, facts=replace(run.facts, run_id=f"{run.facts.query_id}-{number}"))
                for run in dead_store.runs]  # fmt: skip
        dead_store.read(*runs, at=2.0 * number)
    assert sum(sink.asked for sink in dead_store.hanging) == 1
    for sink in dead_store.hanging:
        sink.answers.set()

    def sinks():
        return dead_store.read(*runs, at=dead_store.clock.now + SINK_SECONDS).sinks

    until(lambda: list(sinks().values()) == 9 * [SinkLog(9)], "all of them answer")


def test_checkpoints_are_reported_before_any_sink_is_asked(dead_store):
    asked, announced = [], dead_store.announced
    for sink in dead_store.storage.checkpoints.values():
        if isinstance(sink, MemorySink):
            sink.answers.set()
            sink.files = lambda log: asked.append(list(announced)) or {9: None}
    report = dead_store.read(*dead_store.runs, at=0.0)

    assert {len(before) for before in asked} == {1}
    assert len(announced[0].starts) == 9
    assert (announced[0].sinks, len(report.sinks)) == ({}, 9)
    assert announced == [announced[0], report]


def test_reading_of_a_checkpoint_counts_once_although_it_is_reported_again_with_the_sinks():
    story = Story().started(at=0).probe(run(async_progress=True), at=1)
    report = LogReport(3.0, {"a-1": LoggedBatches(4, 3)})
    story.commit(batch=3, at=2).commit(batch=4, at=3)
    story.state.apply_commit_log(report)
    once = story.query()
    story.commit(batch=5, at=4)
    story.state.apply_commit_log(replace(report, sinks={"b-1": SinkLog(9)}))

    assert once.run.log_behind is None
    assert story.query().run.log_behind is None


def test_no_batch_that_is_written_while_the_sink_is_read_seems_foreign():
    """The plans are read after the log of the sink, although checkpoints come before sinks."""
    checkpoint = MemoryCheckpoint([4], [4])

    class Busy(MemorySink):
        def files(self, log):
            checkpoint.commit(5)
            return {5: None}

    harness = LogReaderHarness(a=checkpoint, out=Busy())
    assert harness.read(to_files("a"), at=0).sinks == {"a-1": SinkLog(5)}


@pytest.mark.parametrize(
    ("written", "offsets", "began", "expected"),
    [
        ({}, {0: 1.0}, 0.0, SinkLog()),
        ({9: None}, {9: None}, 0.0, SinkLog(9)),
        ({9: None}, {}, 0.0, SinkLog(9, skips_to=9)),
        ({49: None}, {3: None}, None, SinkLog(49, skips_to=49)),
        ({9: 500.0}, {9: 490.0}, 480.0, SinkLog(9)),
        ({9: 500.0}, {9: 500.0 + CLOCKS_DIFFER_SECONDS}, 480.0, SinkLog(9)),
        ({4: 100.0, 3: 90.0, 5: 990.0}, {3: 980.0, 4: 983.0, 5: 986.0}, 970.0, SinkLog(5, 4, 3)),
        ({0: 100.0}, {0: 980.0}, 970.0, SinkLog(0, 0, 0)),
        ({0: 100.0}, {0: 980.0}, 985.0, SinkLog(0)),
        ({0: 100.0}, {0: 980.0}, None, SinkLog(0)),
    ],
    ids=["no log", "repeats its batch, no times", "a new checkpoint", "far ahead", "written after its plan", "clocks that differ", "five batches in a moment",
         "its only batch", "a copied checkpoint", "the wall clock was set"],
)  # fmt: skip
def test_sink_skips_what_its_log_has_and_the_run_has_planned_later(
    written, offsets, began, expected
):
    assert sink_log(written, offsets, began) == expected


# -- where a run began ------------------------------------------------------------------------


def point(offsets, commits):
    """The starting point of a run, read at 100 s; file times are seconds before that."""
    ages = [
        {batch: None if age is None else WALL - age for batch, age in log.items()}
        for log in (offsets, commits)
    ]
    return starting_point(*ages, 100.0, WALL)


@pytest.mark.parametrize(
    ("offsets", "commits", "unfinished"),
    [
        ({40: 2500, 41: 2400}, {40: 2450}, Written(41, -2300.0)),
        ({}, {}, None),
        ({40: 9.0}, {40: 8.0}, None),
        ({38: 30.0, 39: 20.0, 40: 9.0}, {38: 29.0, 39: 19.0, 40: 8.0}, None),
        ({39: 20.0}, {39: 19.0, 40: 8.0}, None),
        *(({41: age}, {}, Written(41)) for age in (None, -0.1, -3600.0, WALL, 400 * 86_400.0)),
    ],
    ids=["planned and not committed", "a new checkpoint", "one batch", "many batches", "planned and committed between two listings",
         "its time is unknown", "its time is a moment ahead", "an hour ahead", "in 1970", "older than a year"],
)  # fmt: skip
def test_unfinished_batch_was_planned_and_not_committed_at_a_plausible_time(
    offsets, commits, unfinished
):
    assert point(offsets, commits).unfinished == unfinished


def test_newest_commit_is_known_with_its_time():
    assert point({40: 2500}, {39: 2550, 40: 2450}).committed == Written(40, -2350.0)


def test_longest_batches_are_those_of_the_last_two_days():
    """A long batch may span a restart: planned on Friday, committed on Monday."""
    offsets = {number: 1200.0 * (200 - number) for number in range(200)}
    took = dict.fromkeys(offsets, 30.0) | {9: 90_000.0, 10: 800.0, 150: 700.0, 199: 60.0}
    commits = {number: offsets[number] - took[number] for number in offsets}

    assert point(offsets, commits).longest_seconds == (700.0, 1800.0)


@pytest.mark.parametrize(
    ("offsets", "commits", "longest"),
    [
        ({}, {}, ()),
        ({0: 50.0}, {0: 40.0}, (10.0,)),
        ({0: 50.0, 1: 30.0}, {0: 40.0, 1: 29.0}, (1.0, 10.0)),
        ({0: 50.0, 1: 30.0}, {0: 60.0, 1: 29.0}, (1.0,)),
        ({0: None, 1: 30.0}, {0: 40.0, 1: None}, ()),
        ({0: 20_000.0, 1: 12_000.0}, {0: 12_000.0, 1: 5_000.0}, (7000.0, 7000.0)),
    ],
)
def test_batch_without_two_plausible_times_has_no_duration(offsets, commits, longest):
    assert point(offsets, commits).longest_seconds == longest


def test_files_have_no_age_once_the_wall_clock_was_set():
    """It is not known which of its times compare with those of the storage."""
    harness = LogReaderHarness(**{"/cp": MemoryCheckpoint({0: WALL})})
    runs, unfinished = [run("a"), run("b"), run("c")], []
    for at, ahead in ((1.0, 0.0), (2.0, 4.0), (3.0, 3335.0)):
        harness.ahead = WALL + 60.0 + ahead
        report = harness.read(*runs[: int(at)], at=at)
        unfinished.append([start.unfinished for start in report.starts.values()])

    first, slewed = (Written(0, pytest.approx(age)) for age in (-60.0, -64.0))
    assert unfinished == [[first], [first, slewed], [first, slewed, Written(0)]]


def test_times_of_a_report_are_those_before_a_slow_storage_was_asked():
    """So the last report grows old while the storage hangs, and no clock seems to be set."""

    class Slow(MemoryCheckpoint):
        def files(self, log):
            harness.clock.now += 30.0
            return super().files(log)

    harness = LogReaderHarness(**{"/cp": Slow({0: WALL})})
    harness.ahead = WALL + 60.0
    report = harness.read(run("a"), run("b"), continuous("/cp"), at=1.0)

    assert (report.at, report.logs) == (1.0, {"/cp-1": LoggedBatches(0)})
    ages = [start.unfinished.at for start in report.starts.values()]
    assert ages == pytest.approx([-60.0, -60.0])


def test_starting_point_is_in_every_report_once_it_is_read_and_tried_again_until_then(caplog):
    """Also of a run that has ended; each run has its own."""
    checkpoint = MemoryCheckpoint([41], [40])
    harness, starts = LogReaderHarness(**{"/cp": checkpoint}), {}

    for at in (1, 2, 10.5, 11, 20, 21, 31, 99):
        checkpoint.refusal = "503 SlowDown" if at < 21 else ""
        report = harness.read(run(active=at < 21), at=at)
        starts[at] = (report.starts, checkpoint.asked)
        assert report.unreadable == {}

    read = {"a-1": StartingPoint(Written(40), Written(41))}
    assert starts == {
        1: ({}, 1), 2: ({}, 1), 10.5: ({}, 1), 11: ({}, 2), 20: ({}, 2),
        21: (read, 4), 31: (read, 4), 99: (read, 4),
    }  # fmt: skip
    assert caplog.records == []
    assert harness.read(run(number=2), at=100).starts == {"a-2": read["a-1"]}


def test_where_a_new_checkpoint_begins_is_read_until_a_batch_is_planned():
    checkpoint = MemoryCheckpoint()
    harness, begins = LogReaderHarness(**{"/cp": checkpoint}), {}
    for at in (1, 2, 4, 5, 7, 20):
        if at == 4:
            checkpoint.initial = {0: {"t/0": 600}}
        if at == 5:
            checkpoint.plan(0)
        report = harness.read(run(), at=at)
        begins[at] = (report.starts["a-1"].begins, checkpoint.asked_for_begin)

    read = {0: {"t/0": 600}}
    assert begins == {
        1: ({}, 1),
        2: ({}, 1),
        4: (read, 2),
        5: (read, 2),
        7: (read, 3),
        20: (read, 3),
    }
    assert report.starts["a-1"].unfinished is None, "it was empty when the run began"


@pytest.mark.parametrize(
    ("commits", "asked"), [([0], 1), (range(19), 1), (range(40), 0)], ids=["new", "quick", "old"]
)
def test_an_old_checkpoint_is_not_asked_where_it_began(commits, asked):
    checkpoint = MemoryCheckpoint(commits, commits)
    harness = LogReaderHarness(**{"/cp": checkpoint})
    for at in range(1, 30):
        harness.read(run(), at=at)

    assert checkpoint.asked_for_begin == asked


def test_run_that_has_ended_is_not_asked_again_where_it_began():
    checkpoint = MemoryCheckpoint()
    harness = LogReaderHarness(**{"/cp": checkpoint})
    for at in range(1, 100):
        harness.read(run(active=at < 2), at=at)

    assert checkpoint.asked_for_begin == 1


def test_only_a_new_run_pokes_the_reader():
    harness = LogReaderHarness(**{"/cp": MemoryCheckpoint()})
    harness.read(run(), at=1)
    reader, pokes = harness.reader, []
    reader.poke = lambda: pokes.append(1)

    reader.poke_for(harness.probe)
    assert pokes == []
    reader.poke_for(replace(harness.probe, runs=(run(number=2),)))
    assert pokes == [1]


@pytest.mark.parametrize(
    "seen",
    [continuous("/cp"), run(trigger="RealTimeTrigger(300000)"), run(async_progress=True)],
    ids=["continuous", "realTime", "async progress tracking"],
)
def test_run_without_an_offset_log_has_no_starting_point(seen):
    harness = LogReaderHarness(**{"/cp": MemoryCheckpoint([0], [0])})

    assert harness.read(seen, at=1).starts == {}


# -- places that are lost ---------------------------------------------------------------------


UUID = "4f0c1c7e-91d4-4b8e-9a51-0c8b1a2d3e4f"
LOCAL = "file:/tmp/cp"


def test_checkpoint_that_does_not_survive_has_a_problem_and_no_other_has():
    places = {
        f"file:/tmp/temporary-{UUID}": "temporary",
        f"file:/local_disk0/tmp/temporary-{UUID}/": "temporary",
        f"hdfs://nn/tmp/temporary-{UUID}": "temporary",
        "file:/tmp/cp/bronze": "under /tmp",
        "file:///tmp/cp": "under /tmp",
        "file:/tmp": "under /tmp",
        "file:/var/tmp/cp": "under /var/tmp",
        "file:/dev/shm/cp": "under /dev/shm",
        "": "",
        "s3a://bucket/tmp/cp": "",
        "hdfs://nn/tmp/cp": "",
        "dbfs:/tmp/cp": "",
        "abfss://c@account.dfs.core.windows.net/tmp/cp": "",
        "file:/data/cp": "",
        "file:/tmpfs/cp": "",
        "file:/home/me/tmp/cp": "",
        "file:/mnt/cp/temporary-bronze": "",
        f"file:/mnt/temporary-{UUID}/bronze": "",
        f"file:/mnt/{UUID}": "",
    }
    begins = {place: re.split(r":| on ", checkpoint_problem(place))[0] for place in places}

    assert begins == places


def at(place, query="a", number=1):
    return with_facts(run(query, number), checkpoint=place)


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_status_shows_the_problem_as_long_as_it_exists():
    story = Story().probe(at(LOCAL), at("s3a://b/cp", "b"), at=0).started("c", at=0)
    shown = {one.name: one.checkpoint_problem for one in status(published(story)).queries}

    assert shown == {"a": checkpoint_problem(LOCAL), "b": None, "c": None}
