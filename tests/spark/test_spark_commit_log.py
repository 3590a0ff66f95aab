"""On real Spark: the checkpoint's logs show the progress of a query independently of events."""

from __future__ import annotations

import os
import time

import pytest
from support.queries import rate, start, until
from support.spark_harness import JobListener

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


class Signal:
    """A listener, a probe and a log reader on one Spark, stepped by the test."""

    def __init__(self, spark):
        self.job_listener = JobListener()
        spark.streams.addListener(self.job_listener)
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
    spark.streams.removeListener(signal.job_listener)


def has_run(query, *, batch):
    """Wait for a batch."""
    until(lambda: query.lastProgress and query.lastProgress["batchId"] >= batch, f"batch {batch}")


# -- the storage ------------------------------------------------------------------------------


def test_log_has_the_batch_files_of_its_folder_with_their_modification_times(
    spark, tmp_path, monkeypatch
):
    """A missing folder is empty. In an unknown form of a status, batches have no time."""
    times = {9: 1_700_000_000.5, 10: 1_700_000_060.0, 100: 1_700_000_120.0}
    for name in ("cp", "a b;c", "(a)=[b], ü"):
        log = tmp_path / name / "offsets"
        log.mkdir(parents=True)
        for other in (".100.crc", ".101.0f3e.tmp", "102.tmp", "x"):
            (log / other).touch()
        for batch, seconds in times.items():
            (log / str(batch)).touch()
            os.utime(log / str(batch), (seconds, seconds))
        folder = SparkStorage(spark).open(str(tmp_path / name))

        assert folder.files("offsets") == times
        assert folder.files("commits") == {}
    monkeypatch.setattr(storage, "times_in", lambda _: {})
    assert folder.files("offsets") == dict.fromkeys(times)


# -- queries whose events are not enough -------------------------------------------------------


def test_commit_log_shows_commits_of_a_continuous_query_without_events(spark, signal, tmp_path):
    """Whatever the path of its checkpoint contains."""
    # It occupies one core for each of its tasks while it runs.
    stream = spark.readStream.format("rate").option("numPartitions", 1)
    writer = stream.option("rowsPerSecond", 10).load().writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(tmp_path / "50% of a%20b, c+d (e)=[f] ü"))
    query = writer.queryName("epochs").trigger(continuous="300 milliseconds").start()
    first = until(lambda: (seen := signal.logged("epochs")) and seen.committed, "the first epochs")
    until(lambda: signal.logged("epochs").committed >= first + 3, "three epochs more")
    before = signal.job_listener.batches
    seen = signal.poll("epochs")

    assert seen.facts.trigger.kind == "Continuous"
    assert seen.active
    assert seen.batch_id is None
    assert not seen.waiting_without_data
    assert (seen.work, seen.idle_progress) == (None, None)
    assert signal.probe.details.missing == set()
    offsets = seen.committed_offsets.partition('{"')[2]
    assert offsets
    until(
        lambda: signal.poll("epochs").committed_offsets.partition('{"')[2] != offsets,
        "an epoch with new rows",
    )
    assert signal.job_listener.batches == before

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
