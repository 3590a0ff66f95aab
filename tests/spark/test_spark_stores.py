"""On real Spark: rows that a file sink skips, and input folders that are not there any more."""

from __future__ import annotations

import json
import os
import shutil
import time
from functools import partial

import pytest
from support.queries import SPARK_PATIENCE_SECONDS, commits, until

from querypulse.listener.checkpoints import LogReader
from querypulse.listener.commit_log import SinkLog
from querypulse.listener.spark.event_paths import EventQueue
from querypulse.listener.spark.health_listener import HealthListener
from querypulse.listener.spark.probe import SparkProbe
from querypulse.listener.spark.storage import SparkStorage

pytestmark = [pytest.mark.spark, pytest.mark.every_spark, pytest.mark.thorough]

FLOOR = 4.0
SOON = {
    "stall_floor_seconds": FLOOR,
    "start_grace_seconds": FLOOR,
    "trend_window_seconds": FLOOR,
    "source_interval_seconds": 0.5,
}


def drop(folder, *numbers):
    """Add a file of ten rows for each number; one is a batch."""
    folder.mkdir(exist_ok=True, parents=True)
    for number in numbers:
        rows = [json.dumps({"a": 10 * number + row}) for row in range(10)]
        draft = folder.parent / f"{number}.draft"
        draft.write_text("\n".join(rows))
        draft.rename(folder / f"{number}.json")


def files(spark, folder):
    return spark.readStream.schema("a long").option("maxFilesPerTrigger", 1).json(str(folder))


def write(stream, folder, checkpoint, *, form="parquet", name="writer", **trigger):
    writer = stream.writeStream.format(form).option("path", str(folder)).queryName(name)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(**(trigger or {"processingTime": "200 milliseconds"})).start()


def written_before(spark, tmp_path, *, batches, form="parquet"):
    """A query has written so many batches; its checkpoint is ``old``."""
    drop(tmp_path / "in", *range(batches))
    stream = files(spark, tmp_path / "in")
    query = write(stream, tmp_path / "out", tmp_path / "old", form=form, availableNow=True)
    assert query.awaitTermination(240)


def rows(spark, tmp_path, form="parquet"):
    return spark.read.schema("a long").format(form).load(str(tmp_path / "out")).count()


# -- the log of a file sink -------------------------------------------------------------------


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_new_checkpoint_on_an_old_output_is_data_loss_until_the_query_writes_again(
    spark, watch, pages, tmp_path, form
):
    written_before(spark, tmp_path, batches=5, form=form)
    # Other rows: none of them is in the output.
    shutil.rmtree(tmp_path / "in")
    drop(tmp_path / "in", 10, 11, 12)
    watch(**SOON)
    write(files(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "new", form=form)
    page = pages.wait_for("StreamingDataLossRisk", "writer")

    assert page.labels["severity"] == "critical"
    assert "/out] has batches up to 4 of another checkpoint" in page.annotations["reason"]
    assert "it writes from batch 5 on" in page.annotations["reason"]
    assert rows(spark, tmp_path, form) == 50
    drop(tmp_path / "in", 13, 14, 15)
    until(lambda: rows(spark, tmp_path, form) == 60, "batch 5 is written")
    pages.wait_for("StreamingDataLossRisk", "writer", status="resolved")
    assert {what for _, what, _ in pages.reported} == {"StreamingDataLossRisk"}


class Reader:
    """A reader of logs on real Spark, stepped by the test."""

    def __init__(self, spark):
        self.queue = EventQueue(spark, HealthListener(capacity=1, start=object, start_on=list))
        self.queue.listen(spark)
        self.probe = SparkProbe(spark, self.queue, closer_after_seconds=60)
        self.report = None
        self.reader = LogReader(
            SparkStorage(spark).open,
            lambda: self.report,
            lambda: None,
            interval_seconds=0,
            sink_patience_seconds=SPARK_PATIENCE_SECONDS,
        )

    def sink(self, query):
        """The reading of the log of a query's sink."""
        self.report = self.probe.poll(time.monotonic)
        self.reader.step()
        return self.reader.latest.sinks.get(str(query.runId))


@pytest.fixture
def reader(spark, watch):
    reader = Reader(spark)
    yield reader
    reader.probe.release()


def test_single_batch_that_was_skipped_is_found_after_it_by_the_times_of_the_files(
    spark, reader, tmp_path
):
    written_before(spark, tmp_path, batches=1)
    for path in (tmp_path / "out" / "_spark_metadata").iterdir():
        os.utime(path, (time.time() - 3600, time.time() - 3600))
    query = write(files(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "new")
    until(lambda: query.lastProgress and query.lastProgress["batchId"] == 0, "the only batch")

    assert reader.sink(query) == SinkLog(0, skips_to=0, first=0)
    assert rows(spark, tmp_path) == 10


def test_batch_that_was_written_and_not_committed_is_no_loss(spark, reader, tmp_path):
    """A crash came between the sink's log and the commit: the batch is repeated, and skipped."""
    written_before(spark, tmp_path, batches=12)
    for name in ("11", ".11.crc"):
        (tmp_path / "old" / "commits" / name).unlink()
    query = write(files(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "old")
    until(lambda: query.lastProgress and query.lastProgress["batchId"] == 11, "it is repeated")

    assert reader.sink(query) == SinkLog(11)
    drop(tmp_path / "in", 12)
    until(lambda: rows(spark, tmp_path) == 130, "the next batch is written")


def test_sink_log_that_was_removed_on_purpose_or_is_not_there_yet_is_no_loss(
    spark, reader, tmp_path
):
    written_before(spark, tmp_path, batches=3)
    shutil.rmtree(tmp_path / "out" / "_spark_metadata")
    stream = files(spark, tmp_path / "in")
    repaired = write(stream, tmp_path / "out", tmp_path / "new", name="repaired")
    (tmp_path / "empty").mkdir()
    waits = write(files(spark, tmp_path / "empty"), tmp_path / "other", tmp_path / "cp", name="new")
    until(lambda: repaired.lastProgress and repaired.lastProgress["batchId"] == 2, "its batches")

    assert reader.sink(repaired).skips_to is None
    assert reader.sink(waits) == SinkLog()
    assert rows(spark, tmp_path) == 30


# -- folders of file sources ------------------------------------------------------------------


def polled(sidecar):
    """The queries of which a source was polled."""
    queries = sidecar._runtime.evaluated.snapshot.queries
    return [query for query in queries if query.checkpoint.polls]


def test_input_folder_that_is_moved_away_is_missing_until_it_is_back(spark, watch, pages, tmp_path):
    for name in ("plain", "pattern", "emptied", "unmatched"):
        drop(tmp_path / name / "in", 0)
    start = partial(write, name="plain")
    start(files(spark, tmp_path / "plain" / "in"), tmp_path / "o1", tmp_path / "c1")
    pattern = files(spark, tmp_path / "pattern" / "in" / "*.json")
    write(pattern, tmp_path / "o2", tmp_path / "c2", name="pattern")
    emptied = files(spark, tmp_path / "emptied" / "in")
    write(emptied, tmp_path / "o3", tmp_path / "c3", name="emptied")
    unmatched = files(spark, tmp_path / "unmatched" / "in" / "later-*")
    write(unmatched, tmp_path / "o4", tmp_path / "c4", name="unmatched")
    sidecar = watch(**SOON)
    until(lambda: len(polled(sidecar)) == 4, "each folder was polled")
    (tmp_path / "emptied" / "in" / "0.json").unlink()
    for name in ("plain", "pattern"):
        (tmp_path / name / "in").rename(tmp_path / name / "away")
    for name in ("plain", "pattern"):
        page = pages.wait_for("StreamingInputMissing", name)
        assert page.labels["severity"] == "warning"
        assert f"{tmp_path}/{name}/in has not been there for" in page.annotations["reason"]
    for name in ("plain", "pattern"):
        (tmp_path / name / "away").rename(tmp_path / name / "in")
        pages.wait_for("StreamingInputMissing", name, status="resolved")
    assert {query for _, _, query in pages.reported} == {"plain", "pattern"}


# -- the rows of each source ------------------------------------------------------------------


def test_source_without_rows_is_missing_although_the_other_has_some(spark, watch, pages, tmp_path):
    for name in ("fed", "dry"):
        drop(tmp_path / name, 0)
    both = files(spark, tmp_path / "fed").union(files(spark, tmp_path / "dry"))
    twice = files(spark, tmp_path / "fed")
    query = write(both, tmp_path / "o1", tmp_path / "c1", name="both")
    write(twice.union(twice), tmp_path / "o2", tmp_path / "c2", name="twice")
    sidecar = watch(expected_input_seconds=3 * FLOOR, **SOON)
    for name in ("both", "twice"):
        commits(sidecar, name)
    fed = [0]

    def reasons():
        """Feed the one source; what is reported of the other one."""
        if query.lastProgress["batchId"] >= fed[-1]:
            fed.append(query.lastProgress["batchId"] + 1)
            drop(tmp_path / "fed", len(fed))
        alerts = [alert for alert in sidecar.alerts() if alert.name == "StreamingInputMissing"]
        return [reason for alert in alerts if "]: " in (reason := alert.annotations["reason"])]

    (reason,) = until(reasons, "the source that has dried up is reported")
    assert f"{tmp_path}/dry]: no rows read for" in reason
    assert "/fed]" not in reason
    pages.wait_for("StreamingInputMissing", "both")
    drop(tmp_path / "dry", 1)
    until(lambda: not reasons(), "it is resolved")
    said = [page.annotations["reason"] for page in pages.pages if page.what[1] == "twice"]
    assert not [reason for reason in said if "other sources" in reason]
