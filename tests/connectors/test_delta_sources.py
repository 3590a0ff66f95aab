"""Queries on real Delta tables: unread versions, replaced tables, and the causes of failures."""

from __future__ import annotations

import shutil
import time

import pytest
from support.connectors import DeltaTable
from support.pages import error_of
from support.queries import SPARK_PATIENCE_SECONDS, Trap, idles, rate, shown, start, until

pytestmark = [pytest.mark.spark, pytest.mark.delta, pytest.mark.thorough]

FLOOR = 10


@pytest.fixture
def table(spark, tmp_path):
    """Creates tables in folders of this test."""
    return lambda name: DeltaTable(spark, tmp_path / name)


def lag(sidecar, name):
    query = shown(sidecar, name)
    return query.lag_offsets if query is not None else None


# -- unread versions --------------------------------------------------------------------------


@pytest.mark.nightly
def test_unread_versions_are_counted_while_a_query_hangs_and_after_it_failed(table, watch):
    orders, trap = table("orders").write(3), Trap()
    sidecar = watch(source_interval_seconds=0.2)
    query = start(orders.stream(), "orders", trap)
    until(lambda: lag(sidecar, "orders") == 0, "all is read")
    assert known(sidecar, "orders").checkpoint.polls[0].waiting_since == {}
    before = time.time()
    trap.hold.set()
    orders.write()
    assert trap.held.wait(SPARK_PATIENCE_SECONDS)
    orders.write(2)
    try:
        until(lambda: lag(sidecar, "orders") == len(orders.history()) - 3 == 3, "three are unread")
        # Files know the time to the millisecond.
        waiting_since = known(sidecar, "orders").checkpoint.polls[0].waiting_since[""]
        assert before - 0.001 <= waiting_since <= time.time()
    finally:
        trap.die.set()
        trap.release()
    until(lambda: not query.isActive or query.exception(), "the query fails")
    orders.write(2)
    unread = len(orders.history()) - 4
    assert unread == 4
    until(lambda: lag(sidecar, "orders") == unread, "more are unread after the failure")


def test_no_version_is_unread_after_commits_without_data(table, watch):
    """Delta's offset also moves past commits without data: they are no lag."""
    facts = table("facts").write(2)
    sidecar = watch(source_interval_seconds=0.2)
    query = start(facts.stream(skipChangeCommits="true"), "facts")
    for statement in (
        "OPTIMIZE {}",
        "ALTER TABLE {} SET TBLPROPERTIES ('a' = 'b')",
        "DELETE FROM {} WHERE id = 2",
    ):
        facts.sql(statement)
        query.processAllAvailable()
        beyond = facts.history()[-1] + 1
        until(
            lambda beyond=beyond: read_up_to(sidecar, "facts") == beyond,
            f"beyond {statement}",
        )
        assert lag(sidecar, "facts") == 0


def read_up_to(sidecar, name):
    """The first version that the query has not read, as the sidecar knows it."""
    polls = known(sidecar, name).checkpoint.polls
    return polls[0].committed.get("") if polls else None


def known(sidecar, name):
    """The query as querypulse knows it, with details that are not published."""
    queries = sidecar._runtime.evaluated.snapshot.queries
    return next(query for query in queries if query.name == name)


# -- changes to the table ---------------------------------------------------------------------


def test_replaced_table_is_reported_although_its_query_idles_silently(table, watch, pages):
    old, new = table("replaced").write(5), table("new").write(2)
    sidecar = watch(source_interval_seconds=0.2, stall_floor_seconds=FLOOR)
    query = start(old.stream(), "replaced")
    until(lambda: lag(sidecar, "replaced") == 0, "all is read")
    old.replace_by(new)
    reason = pages.wait_for("StreamingOffsetsRewound", "replaced").annotations["reason"]

    assert "ends at 2, but was read up to 5: it was replaced" in reason
    assert query.isActive
    assert pages.reported == [("firing", "StreamingOffsetsRewound", "replaced")]


# -- versions that are deleted ----------------------------------------------------------------


def test_unread_versions_are_reported_before_they_are_deleted_and_after(table, watch, pages):
    orders, trap = table("outlived").write(3), Trap()
    # Delta wants the log to be kept for at least as long as files.
    orders.sql(
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.logRetentionDuration' = '20 seconds',"
        " 'delta.deletedFileRetentionDuration' = '20 seconds')"
    )
    sidecar = watch(source_interval_seconds=0.2, stall_floor_seconds=FLOOR)
    start(orders.stream(), "outlived", trap).processAllAvailable()
    until(lambda: lag(sidecar, "outlived") == 0, "all is read")
    trap.hold.set()
    orders.write()
    with trap.holding():
        orders.write(4)
        annotations = pages.wait_for("StreamingDataLossRisk", "outlived").annotations
        assert "used up (delta.logRetentionDuration, 20 s)" in annotations["reason"]
        assert "the oldest unread version is" in annotations["reason"]

        orders.forget(before=6)
        until(
            lambda: "2 versions were deleted before they were read" in risk(sidecar, "outlived"),
            "the loss is proven",
        )


def test_files_that_vacuum_deletes_before_their_version_is_read_are_foreseen(table, watch, pages):
    """A version is rewritten before it is read; the log is kept for long, its files are not."""
    orders, trap = table("rewritten").write(3), Trap()
    orders.sql(
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = '20 seconds')"
    )
    appended = table("appended").write(3)
    appended.sql(
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = '1 seconds')"
    )
    sidecar = watch(source_interval_seconds=0.2, stall_floor_seconds=FLOOR)
    others = Trap()
    start(orders.stream(), "rewritten", trap).processAllAvailable()
    start(appended.stream(), "appended", others).processAllAvailable()
    trap.hold.set()
    others.hold.set()
    orders.write()
    appended.write()
    with trap.holding(), others.holding():
        appended.write(2)
        orders.write(2).sql("OPTIMIZE {}")
        annotations = pages.wait_for("StreamingDataLossRisk", "rewritten").annotations
        assert (
            "(delta.deletedFileRetentionDuration, 20 s, because its files were rewritten)"
            in (annotations["reason"])
        )
        assert risk(sidecar, "appended") == ""


def risk(sidecar, name):
    """The reasons of the query's alert about data loss."""
    return " ".join(
        alert.annotations["reason"]
        for alert in sidecar.alerts()
        if alert.labels["alertname"] == "StreamingDataLossRisk" and alert.labels["query"] == name
    )


# -- causes of failures -----------------------------------------------------------------------


def overwritten(table):
    query = start(table.stream(), "overwritten")
    query.processAllAvailable()
    table.write(mode="overwrite")


def vacuumed(table):
    """The files of the table are deleted before the query reads them."""
    trap = Trap()
    trap.hold.set()
    start(table.stream(maxFilesPerTrigger=1), "vacuumed", trap)
    assert trap.held.wait(SPARK_PATIENCE_SECONDS)
    trap.work = lambda batch: batch.collect()
    table.write(mode="overwrite").vacuum()
    trap.release()


def outrun(table):
    """The table's log is cleaned up past the query's position."""
    query = start(table.stream(), "outrun", checkpoint=table.folder.with_suffix(".checkpoint"))
    query.processAllAvailable()
    query.stop()
    table.write(12).forget(before=9)
    start(table.stream(), "outrun", checkpoint=table.folder.with_suffix(".checkpoint"))


def widened(table):
    query = start(table.stream(), "widened")
    query.processAllAvailable()
    table.write(columns=("id", "id AS more"), mergeSchema="true")


def recreated(table):
    checkpoint = table.folder.with_suffix(".checkpoint")
    query = start(table.stream(), "recreated", checkpoint=checkpoint)
    query.processAllAvailable()
    query.stop()
    table.drop()
    table.write()
    start(table.stream(), "recreated", checkpoint=checkpoint)


def dropped(table):
    query = start(table.stream(), "dropped")
    query.processAllAvailable()
    table.drop()


FAILURES = {
    overwritten: ("DELTA_SOURCE_TABLE_IGNORE_CHANGES", "Detected a data update"),
    vacuumed: ("FAILED_READ_FILE.FILE_NOT_EXIST", "File does not exist"),
    outrun: ("DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE", "your query is lagging behind"),
    widened: ("DELTA_SCHEMA_CHANGED_WITH_VERSION", "Detected schema change in version"),
    recreated: (
        "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
        "reading from an unexpected Delta table",
    ),
    dropped: ("FileNotFoundException", "_delta_log does not exist"),
}


def test_query_that_fails_because_of_its_table_is_reported_with_the_cause(table, watch, pages):
    watch()
    unlike = {}
    for kill, (error_class, text) in FAILURES.items():
        kill(table(kill.__name__).write(3))
        annotations = pages.wait_for("StreamingQueryFailed", kill.__name__).annotations
        classes = annotations["error_class"], error_class in annotations["reason"]
        if classes != (error_class, True) or text not in error_of(annotations):
            unlike[kill.__name__] = annotations

    assert unlike == {}


# -- a sink that remembers batch ids --------------------------------------------------------------


@pytest.mark.nightly
def test_restored_checkpoint_of_a_query_that_writes_a_table_is_a_warning(
    spark, table, watch, pages, tmp_path
):
    """Delta keeps the newest batch of each query id: it skips what the query commits again."""
    source, checkpoint, backup = table("source"), tmp_path / "cp", tmp_path / "backup"
    risk = ("StreamingDataLossRisk", "writer")

    def running():
        return start(
            source.stream(), "writer", "delta", checkpoint=checkpoint, path=tmp_path / "out"
        )

    def batches(query, count):
        for _ in range(count):
            source.write()
            query.processAllAvailable()

    def rows():
        return spark.read.format("delta").load(str(tmp_path / "out")).count()

    watch()
    source.write()
    query = running()
    batches(query, 2)
    query.stop()
    shutil.copytree(checkpoint, backup)
    query = running()
    batches(query, 4)
    query.stop()
    before = rows()
    shutil.rmtree(checkpoint)
    backup.rename(checkpoint)
    query = running()
    batches(query, 1)
    page = pages.wait_for(*risk)
    assert page.labels["severity"] == "warning"
    assert "remembers batch ids" in page.annotations["reason"]
    assert rows() == before, "three rows were read and not written"
    batches(query, 5)
    pages.wait_for(*risk, status="resolved")
    assert rows() > before
    assert {what for _, what, _ in pages.reported} == {risk[0]}


# -- no false alarms ----------------------------------------------------------------------------


@pytest.mark.nightly
def test_healthy_queries_on_tables_raise_no_alert(spark, table, watch, pages, tmp_path):
    """Idle, first version after idleness, catching up, joined with a busy source, scheduled."""
    sidecar = watch(source_interval_seconds=0.2, stall_floor_seconds=FLOOR)
    idle, late, behind = (table(name).write(2) for name in ("idle", "late", "behind"))
    beside, loop = table("beside").write(2), table("loop").write(2)
    behind.write(10)
    start(idle.stream(), "idle")
    start(late.stream(), "late", Trap())
    start(behind.stream(startingVersion=0, maxFilesPerTrigger=1), "behind")
    both = beside.stream().select("id").union(rate(spark).selectExpr("value AS id"))
    start(both, "beside")
    sink = late.stream().writeStream.format("delta").queryName("to_delta")
    sink.option("checkpointLocation", tmp_path / "cp").start(str(tmp_path / "out"))

    while not idles(sidecar, "late", 2 * FLOOR):
        writer = loop.write().stream().writeStream.format("noop").queryName("loop")
        writer = writer.option("checkpointLocation", tmp_path / "loop-cp")
        assert writer.trigger(availableNow=True).start().awaitTermination(SPARK_PATIENCE_SECONDS)
        time.sleep(2)
    late.write()
    idle.sql("OPTIMIZE {}")
    until(lambda: not idles(sidecar, "late", 2 * FLOOR), "the late version is read")
    assert sidecar.flush()
    assert pages.reported == []
