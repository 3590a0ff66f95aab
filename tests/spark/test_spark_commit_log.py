"""On real Spark: the checkpoint's logs show the progress of a query independently of events."""

from __future__ import annotations

import os
import time

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener
from support.queries import SPARK_PATIENCE_SECONDS, Trap, rate, start, until

from querypulse.listener.checkpoints import LogReader
from querypulse.listener.spark import storage
from querypulse.listener.spark.event_paths import EventQueue
from querypulse.listener.spark.health_listener import HealthListener
from querypulse.listener.spark.probe import SparkProbe
from querypulse.listener.spark.storage import SparkStorage

pytestmark = [pytest.mark.spark, pytest.mark.every_spark, pytest.mark.thorough]

ASYNC = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "60000",
}


class Progresses(StreamingQueryListener):
    """Counts the progress events of Spark."""

    def __init__(self):
        self.count = 0

    def onQueryStarted(self, event):
        pass

    def onQueryProgress(self, event):
        self.count += 1

    def onQueryIdle(self, event):
        pass

    def onQueryTerminated(self, event):
        pass


class Signal:
    """A listener, a probe and a log reader on one Spark, stepped by the test."""

    def __init__(self, spark):
        self.progresses = Progresses()
        spark.streams.addListener(self.progresses)
        self.queue = EventQueue(spark, HealthListener(capacity=1, start=object, start_on=list))
        self.queue.listen(spark)
        self.probe = SparkProbe(spark, self.queue, closer_after_seconds=0.2)
        self.report = None
        self.reader = LogReader(
            SparkStorage(spark).open,
            lambda: self.report,
            lambda: None,
            stall_floor_seconds=0,
            interval_seconds=0,
        )

    def poll(self, name):
        """The newest result of the probe for a run."""
        self.report = self.probe.poll(time.monotonic)
        return next(run for run in self.report.runs if run.facts.name == name)

    def logged(self, name):
        """The newest ids in a run's logs; None when its logs are not read."""
        run_id = self.poll(name).facts.run_id
        self.reader.step()
        assert self.reader.latest.unreadable == {}
        return self.reader.latest.logs.get(run_id)


@pytest.fixture
def signal(spark):
    signal = Signal(spark)
    yield signal
    for query in spark.streams.active:
        query.stop()
    signal.probe.release()
    spark.streams.removeListener(signal.progresses)


def newest(spark, place):
    """The newest ids in both logs."""
    checkpoint = SparkStorage(spark).open(str(place))
    return [max(checkpoint.files(log), default=None) for log in ("offsets", "commits")]


def has_run(query, *, batch):
    """Wait for a batch."""
    until(lambda: query.lastProgress and query.lastProgress["batchId"] >= batch, f"batch {batch}")


def fill(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / str(name)).touch()


def one_task(spark):
    """A Continuous query occupies one core for each of its tasks while it runs."""
    stream = spark.readStream.format("rate").option("numPartitions", 1)
    return stream.option("rowsPerSecond", 10).load()


def continuous(spark, name, checkpoint=None):
    writer = one_task(spark).writeStream.format("noop").queryName(name)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(continuous="300 milliseconds").start()


# -- the storage ------------------------------------------------------------------------------


def test_the_logs_of_a_query_agree_with_its_progress(spark, signal, tmp_path):
    query = start(rate(spark), "plain", checkpoint=tmp_path / "cp")
    has_run(query, batch=2)
    query.stop()
    done = query.lastProgress["batchId"]
    place = query._jsq.streamingQuery().resolvedCheckpointRoot()
    planned, committed = newest(spark, place)

    assert committed in (done, done + 1)
    assert planned - committed in (0, 1)


def test_log_times_are_the_modification_times_of_its_files(spark, tmp_path):
    for name in ("cp", "a b;c", "(a)=[b], ü"):
        place = tmp_path / name
        fill(place / "offsets", 9, 10, ".11.crc", ".12.0f3e.tmp")
        os.utime(place / "offsets" / "9", (1_700_000_000.5, 1_700_000_000.5))
        os.utime(place / "offsets" / "10", (1_700_000_060.0, 1_700_000_060.0))
        (place / "commits").mkdir()
        folder = SparkStorage(spark).open(str(place))

        assert folder.files("offsets") == {9: 1_700_000_000.5, 10: 1_700_000_060.0}
        assert folder.files("commits") == {}


def test_batches_have_no_time_in_an_unknown_form_of_a_status(spark, tmp_path, monkeypatch):
    fill(tmp_path / "offsets", 9, 10)
    monkeypatch.setattr(storage, "times_in", lambda _: {})

    assert SparkStorage(spark).open(str(tmp_path)).files("offsets") == {9: None, 10: None}


def test_only_batch_files_count_and_they_sort_as_numbers(spark, tmp_path):
    """A missing folder is empty."""
    (tmp_path / "cp").mkdir()
    assert newest(spark, tmp_path / "cp") == [None, None]
    fill(tmp_path / "cp" / "offsets", 9, 10, 100, ".100.crc", ".101.0f3e.tmp", "102.tmp", "x")
    fill(tmp_path / "cp" / "commits", 9, 10, 99)
    assert newest(spark, tmp_path / "cp") == [100, 99]


# -- queries whose events are not enough -------------------------------------------------------


def test_checkpoint_path_may_contain_special_characters(spark, signal, tmp_path):
    for number, name in enumerate(["a b", "50%", "a%20b", "a+b,c", "(a)=[b]", "ü"]):
        query = continuous(spark, f"epochs {number}", checkpoint=tmp_path / name)

        def commits(label=query.name):
            seen = signal.logged(label)
            return seen and seen.committed is not None

        until(commits, f"a commit in {name!r}")
        assert (tmp_path / name / "commits").is_dir()
        query.stop()


def test_commit_log_shows_commits_of_a_continuous_query_without_events(spark, signal):
    query = continuous(spark, "epochs")
    first = until(lambda: (seen := signal.logged("epochs")) and seen.committed, "the first epochs")
    until(lambda: signal.logged("epochs").committed >= first + 3, "three epochs more")
    before = signal.progresses.count
    seen = signal.poll("epochs")

    assert seen.facts.trigger.kind == "Continuous"
    assert seen.active
    assert seen.batch_id is None
    assert not seen.waiting_without_data
    assert (seen.work, seen.idle_progress) == (None, None)
    assert signal.probe.details.missing == set()
    offsets = seen.committed_offsets.partition('{"')[2]
    assert offsets
    until(lambda: signal.logged("epochs").committed >= first + 6, "three epochs more")
    assert signal.poll("epochs").committed_offsets.partition('{"')[2] != offsets
    assert signal.progresses.count == before

    query.stop()
    assert signal.logged("epochs") is None
    assert not signal.poll("epochs").active


def test_async_progress_tracking_writes_its_log_after_its_events(spark, signal):
    writer = rate(spark).writeStream.format("noop").queryName("async").options(**ASYNC)
    query = writer.trigger(processingTime="100 milliseconds").start()
    has_run(query, batch=4)
    seen = signal.logged("async")

    facts = signal.poll("async").facts
    assert (facts.async_progress, facts.log_interval_seconds) == (True, 60)
    assert seen.committed < query.lastProgress["batchId"]


def test_hung_batch_is_planned_but_not_committed(spark, signal):
    trap = Trap()
    query = start(rate(spark), "hung", trap)
    has_run(query, batch=1)
    assert not signal.poll("hung").facts.async_progress
    trap.hold.set()
    assert trap.held.wait(SPARK_PATIENCE_SECONDS)
    try:
        seen = until(lambda: signal.logged("hung"), "its logs are read")
        assert seen.planned == seen.committed + 1 == signal.poll("hung").batch_id
    finally:
        trap.hold.clear()
        trap.free.set()
    until(lambda: signal.logged("hung") is None, "its logs are not read any more")


def test_failure_is_reported_with_the_failed_batch(spark, signal):
    trap = Trap()
    query = start(rate(spark), "doomed", trap)
    has_run(query, batch=1)
    seen = signal.poll("doomed").batch_id
    trap.die.set()
    until(lambda: not query.isActive, "the query fails")

    last = signal.poll("doomed")
    assert not last.active
    assert last.batch_id >= seen
    assert last.batch_id == query.lastProgress["batchId"] + 1


# -- idle progress ----------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
def test_bulk_and_single_queries_of_the_jvm_give_the_same_result(
    spark, signal, tmp_path, monkeypatch, at_once
):
    if not at_once:
        monkeypatch.setattr(signal.queue, "living_runs", lambda: None)
    (tmp_path / "a.json").write_text('{"a": 1}')
    files = spark.readStream.schema("a long").json(str(tmp_path))
    query = start(files, "waiting", trigger="100 milliseconds")
    idle = until(lambda: signal.poll("waiting").idle_progress, "an idle progress")
    assert (idle.run_id, idle.committed, idle.input_rows) == (query.runId, False, 0)
    assert idle.batch_id == 1 == signal.poll("waiting").batch_id
    assert len(idle.sources) == 1

    def seen():
        return signal.poll("waiting")

    def waiting():
        run = seen()
        return run if run.waiting_without_data and run.idle_progress else None

    waits = until(waiting, "the query waits")
    assert (waits.active, waits.batch_id, waits.idle_progress.batch_id) == (True, 1, 1)
    assert (
        waits.committed_offsets == "{FileStreamSource[file:" + str(tmp_path) + ']: {"logOffset":0}}'
    )
    (tmp_path / "b.json").write_text('{"a": 2}')
    until(lambda: '{"logOffset":1}' in seen().committed_offsets, "the second batch's offsets")
    query.stop()
    again = start(files, "waiting", trigger="100 milliseconds")
    assert {run.active for run in signal.probe.poll(time.monotonic).runs} == {True, False}
    again.stop()
    assert not any(run.active for run in signal.probe.poll(time.monotonic).runs)
    assert signal.probe.details.missing == set()


def test_query_with_constant_input_has_no_idle_progress(spark, signal):
    query = start(rate(spark), "running", trigger="100 milliseconds")
    has_run(query, batch=2)

    seen = [signal.poll("running").idle_progress for _ in range(20)]
    assert seen == [None] * 20
