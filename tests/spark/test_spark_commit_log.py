"""On real Spark: the checkpoint's logs show the progress of a query independently of events."""

from __future__ import annotations

import os
import time

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener
from support.fake_spark import FakeChannel
from support.queries import Trap, rate, start, until

from querypulse.listener.checkpoints import LogReader
from querypulse.listener.commit_log import CheckpointLogs, LoggedBatches, StorageError
from querypulse.listener.spark.probe import SparkProbe
from querypulse.listener.spark.storage import HadoopFolder, SparkStorage

pytestmark = pytest.mark.spark

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
        self.probe = SparkProbe(spark, FakeChannel(), closer_after_seconds=0.2)
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
    one = Signal(spark)
    yield one
    for query in spark.streams.active:
        query.stop()
    one.probe.release()
    spark.streams.removeListener(one.progresses)


def logs(spark, place, *, gaps=False):
    return CheckpointLogs(SparkStorage(spark).open(str(place)), gaps=gaps)


def has_run(query, *, batch):
    """Wait for a batch; the first query of a driver starts slowly on a busy machine."""
    done = lambda: query.lastProgress and query.lastProgress["batchId"] >= batch
    until(done, f"batch {batch}", timeout=120)


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
    seen = logs(spark, place).read(0)

    assert seen.committed in (done, done + 1)
    assert seen.planned - seen.committed in (0, 1)


@pytest.mark.parametrize("name", ["cp", "a b;c", "(a)=[b], ü"])
def test_log_times_are_the_modification_times_of_its_files(spark, tmp_path, name):
    place = tmp_path / name
    fill(place / "offsets", 9, 10, 11, ".11.crc", ".12.0f3e.tmp")
    os.utime(place / "offsets" / "10", (1_700_000_000.5, 1_700_000_000.5))
    (place / "commits").mkdir()
    times = SparkStorage(spark).open(str(place)).times("offsets")

    assert times.keys() == {9, 10, 11}
    assert times[10] == 1_700_000_000.5
    assert abs(times[11] - time.time()) < 60
    assert SparkStorage(spark).open(str(place)).times("commits") == {}


def test_unknown_listing_format_falls_back_to_the_newest_file(spark, tmp_path, monkeypatch):
    fill(tmp_path / "offsets", 9, 10)
    monkeypatch.setattr(HadoopFolder, "statuses", lambda *_: "Array(file 9, file 10)")
    times = SparkStorage(spark).open(str(tmp_path)).times("offsets")

    assert times[9] is None
    assert abs(times[10] - time.time()) < 60


@pytest.mark.parametrize("name", ["a b", "50%", "a%20b", "a+b,c", "(a)=[b]", "ü"])
def test_checkpoint_path_may_contain_special_characters(spark, signal, tmp_path, name):
    continuous(spark, "epochs", checkpoint=tmp_path / name)

    until(lambda: (seen := signal.logged("epochs")) and seen.committed is not None, "a commit")
    assert (tmp_path / name / "commits").is_dir()


def test_only_batch_files_count_and_they_sort_as_numbers(spark, tmp_path):
    fill(tmp_path / "offsets", 9, 10, 100, ".100.crc", ".101.0f3e.tmp", "102.tmp", "x")
    fill(tmp_path / "commits", 9, 10, 99)

    assert logs(spark, tmp_path).read(0) == LoggedBatches(100, 99)


def test_missing_log_folders_read_as_empty(spark, tmp_path):
    (tmp_path / "cp").mkdir()
    one = logs(spark, tmp_path / "cp")
    assert one.read(0) == LoggedBatches(None, None)
    fill(tmp_path / "cp" / "offsets", 0)
    fill(tmp_path / "cp" / "commits")

    assert one.read(1) == LoggedBatches(0, None)


def test_log_reader_finds_newer_batches_after_a_purge(spark, tmp_path):
    one = logs(spark, tmp_path)
    for log in ("offsets", "commits"):
        fill(tmp_path / log, *range(5))
    assert one.read(0) == LoggedBatches(4, 4)
    for log in ("offsets", "commits"):
        fill(tmp_path / log, *range(200, 300))
        for batch in range(5):
            (tmp_path / log / str(batch)).unlink()

    assert one.read(1) == LoggedBatches(299, 299)


@pytest.mark.parametrize(
    ("place", "reason"),
    [("nosuch://host/cp", "nosuch"), (":", "Expected scheme"), ("", "empty string")],
    ids=["unknown scheme", "no path", "empty"],
)
def test_invalid_storage_path_gives_a_short_error(spark, place, reason):
    with pytest.raises(StorageError, match=reason) as refused:
        SparkStorage(spark).open(place)

    assert len(str(refused.value)) < 200
    assert "\n" not in str(refused.value)


# -- queries whose events are not enough -------------------------------------------------------


def test_commit_log_shows_commits_of_a_continuous_query_without_events(spark, signal):
    continuous(spark, "epochs")
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
    until(lambda: signal.logged("epochs").committed >= first + 6, "three epochs more")
    assert signal.progresses.count == before


def test_continuous_query_reports_the_offsets_of_its_last_epoch(spark, signal):
    continuous(spark, "offsets")
    first = until(lambda: signal.poll("offsets").committed_offsets.partition('{"')[2], "offsets")

    until(
        lambda: signal.poll("offsets").committed_offsets.partition('{"')[2] != first,
        "other offsets",
    )


def test_logs_of_a_stopped_continuous_query_are_not_read(spark, signal):
    query = continuous(spark, "short")
    until(lambda: signal.logged("short") is not None, "its logs are read")
    query.stop()

    assert signal.logged("short") is None
    assert not signal.poll("short").active


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
    assert signal.logged("hung") is None
    trap.hold.set()
    assert trap.held.wait(10)
    try:
        seen = until(lambda: signal.logged("hung"), "its logs are read")
        assert seen.planned == seen.committed + 1 == signal.poll("hung").batch_id
    finally:
        trap.hold.clear()
        trap.free.set()
    until(lambda: signal.logged("hung") is None, "its logs are not read any more")


def test_logs_of_a_healthy_query_are_not_read(spark, signal):
    query = start(rate(spark), "healthy")
    has_run(query, batch=4)

    assert not signal.poll("healthy").facts.async_progress
    assert [signal.logged("healthy") for _ in range(20)] == [None] * 20


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


def test_probe_reports_the_idle_progress_of_a_waiting_query(spark, signal, tmp_path):
    (tmp_path / "a.json").write_text('{"a": 1}')
    files = spark.readStream.schema("a long").json(str(tmp_path))
    query = start(files, "waiting", trigger="100 milliseconds")
    found = until(lambda: signal.poll("waiting").idle_progress, "an idle progress")

    assert (found.run_id, found.committed, found.input_rows) == (query.runId, False, 0)
    assert found.batch_id == 1 == signal.poll("waiting").batch_id
    assert len(found.sources) == 1
    assert signal.probe.details.missing == set()


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
def test_bulk_and_single_queries_of_the_jvm_give_the_same_result(
    spark, signal, tmp_path, monkeypatch, at_once
):
    if not at_once:
        monkeypatch.setattr(signal.probe._queries._living_runs, "ask", lambda _: None)
    (tmp_path / "a.json").write_text('{"a": 1}')
    files = spark.readStream.schema("a long").json(str(tmp_path))
    query = start(files, "waiting", trigger="100 milliseconds")
    until(lambda: signal.poll("waiting").idle_progress, "an idle progress")

    def seen():
        return signal.poll("waiting")

    def waiting():
        one = seen()
        return one if one.waiting_without_data and one.idle_progress else None

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
