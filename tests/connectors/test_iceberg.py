"""Queries on real Iceberg tables: a stuck commit, a changed table, and no false alarms."""

from __future__ import annotations

import pytest
from support.connectors import IcebergTable
from support.pages import error_of
from support.queries import Trap, commits, idles, rate, shown, start, until, warm

from querypulse.listener.sources import iceberg

pytestmark = [pytest.mark.spark, pytest.mark.iceberg]

FLOOR = 10
OTHER_WRITER = "another writer"


@pytest.fixture(scope="module")
def table(spark):
    """Create tables in the catalog."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS ice.db")
    warehouse = spark.conf.get("spark.sql.catalog.ice.warehouse")
    return lambda name: IcebergTable(spark, warehouse, name)


@pytest.fixture
def lock(spark):
    """The locks that writers take before a commit if the table's catalog has none."""
    manager = getattr(spark._jvm, "org.apache.iceberg.util.LockManagers").defaultLockManager()
    held = []

    def hold(name):
        assert manager.acquire(name, OTHER_WRITER)
        held.append(name)

    def free():
        while held:
            assert manager.release(held.pop(), OTHER_WRITER)

    hold.free = free
    yield hold
    free()


def append(stream, name, table, checkpoint):
    writer = stream.writeStream.format("iceberg").queryName(name).outputMode("append")
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime="500 milliseconds").toTable(table.name)


def test_append_with_a_stuck_commit_is_reported_and_resolved(table, lock, watch, pages, tmp_path):
    facts = table("facts")
    query = append(rate(facts.spark).selectExpr("value AS id"), "facts", facts, tmp_path / "cp")
    warm(query)
    sidecar = watch(stall_floor_seconds=FLOOR)
    commits(sidecar, "facts", 2)
    # The very next commit may hold its lock already.
    for ahead in (1, 2, 3):
        lock(facts.commit_file(ahead))
    annotations = pages.wait_for("StreamingQueryStalled", "facts").annotations

    assert "batch_hung" in annotations["reason"]
    assert "LockManager" in annotations["stream_thread"]
    assert query.isActive
    lock.free()
    pages.wait_for("StreamingQueryStalled", "facts", status="resolved")
    assert shown(sidecar, "facts").state == "running"
    rows = facts.rows()
    until(lambda: facts.rows() > rows, "it appends again")


def overwritten(table):
    table.spark.sql(f"INSERT OVERWRITE {table.name} SELECT 1")


def dropped(table):
    table.spark.sql(f"DROP TABLE {table.name} PURGE")


FAILURES = {
    overwritten: (("IllegalStateException",), "Cannot process overwrite snapshot"),
    # Whether its metadata or a data file is missed first.
    dropped: (("ValidationException", "NotFoundException"), ""),
}


def test_query_that_fails_because_of_its_table_is_reported_with_the_cause(table, watch, pages):
    watch()
    for change, (error_classes, text) in FAILURES.items():
        read = table(change.__name__).write()
        query = start(read.stream(), change.__name__)
        query.processAllAvailable()
        change(read)
        page = pages.wait_for("StreamingQueryFailed", change.__name__)

        assert page.annotations["error_class"] in error_classes
        assert text in error_of(page.annotations)


def test_query_whose_snapshots_have_expired_is_reported_with_the_cause(
    spark, table, watch, pages, tmp_path
):
    read, checkpoint = table("expired").write(), tmp_path / "cp"
    watch()
    query = start(read.stream(), "expired", checkpoint=checkpoint)
    query.processAllAvailable()
    query.stop()
    read.write(2)
    spark.sql(
        "CALL ice.system.expire_snapshots(table => 'db.expired', retain_last => 1,"
        " older_than => TIMESTAMP '2100-01-01 00:00:00')"
    )
    start(read.stream(), "expired", checkpoint=checkpoint)
    page = pages.wait_for("StreamingQueryFailed", "expired")

    assert "the snapshot was expired or removed" in error_of(page.annotations)


def lag(sidecar, name):
    query = shown(sidecar, name)
    return None if query is None else query.lag_offsets


def reasons(sidecar, alertname):
    return [
        alert.annotations["reason"]
        for alert in sidecar.alerts()
        if alert.labels["alertname"] == alertname
    ]


def test_unread_snapshots_are_reported_before_they_expire_and_after(
    table, watch, pages, monkeypatch
):
    monkeypatch.setattr(iceberg, "REFRESH_EVERY_SECONDS", 0.2)
    read, trap = table("outlived").write().keep(seconds=20), Trap()
    sidecar = watch(source_interval_seconds=0.2, stall_floor_seconds=FLOOR)
    query = start(read.stream(), "outlived", trap)
    query.processAllAvailable()
    until(lambda: lag(sidecar, "outlived") == 0, "all is read")
    trap.hold.set()
    read.write()
    with trap.holding():
        read.write(2)
        until(lambda: lag(sidecar, "outlived") == 3, "three snapshots are unread")
        reason = pages.wait_for("StreamingDataLossRisk", "outlived").annotations["reason"]
        assert reason.startswith("ice.db.outlived: ")
        assert "used up (history.expire.max-snapshot-age-ms, 20 s)" in reason
        assert "the oldest unread snapshot is" in reason

        read.expire()
        lost = "up to which it has read, has expired"
        until(
            lambda: any(lost in text for text in reasons(sidecar, "StreamingDataLossRisk")),
            "the loss is proven",
        )
    steps = pages.wait_for("StreamingQueryFailed", "outlived").annotations["next_steps"]
    assert steps.startswith("1. The table has expired")


def test_compacted_and_expired_snapshots_that_were_read_are_no_lag_and_no_risk(
    table, watch, pages, monkeypatch
):
    """The query has read to the end; the table keeps one snapshot, for no time."""
    monkeypatch.setattr(iceberg, "REFRESH_EVERY_SECONDS", 0.2)
    compacted, expired = (table(name).write(3).keep(seconds=1) for name in ("compacted", "short"))
    sidecar = watch(source_interval_seconds=0.2, stall_floor_seconds=FLOOR)
    start(compacted.stream(), "compacted").processAllAvailable()
    start(expired.stream(), "short").processAllAvailable()
    compacted.compact()
    expired.expire()
    until(lambda: idles(sidecar, "compacted", 2 * FLOOR), "it idles for long")
    assert sidecar.flush()

    assert (lag(sidecar, "compacted"), lag(sidecar, "short")) == (0, 0)
    queries = sidecar._runtime.evaluated.snapshot.queries
    polls = [poll for query in queries for poll in query.checkpoint.polls.values()]
    assert [poll.waiting_since for poll in polls] == [{}, {}]
    assert [poll.retention_seconds for poll in polls] == [{}, {}]
    assert pages.reported == []


def test_healthy_queries_on_tables_raise_no_alert(spark, table, watch, pages, tmp_path):
    """Idle, the first snapshot after idleness, catching up file by file, and an append."""
    idle, late, behind, out = (table(name) for name in ("idle", "late", "behind", "out"))
    for read in (idle, late):
        read.write()
    behind.write(5)
    sidecar = watch(stall_floor_seconds=FLOOR)
    start(idle.stream(), "idle")
    one_by_one = {"streaming-max-files-per-micro-batch": 1}
    query = start(behind.stream(**one_by_one), "behind", trigger="1 second")
    append(late.stream(), "late", out, tmp_path / "cp")
    until(lambda: out.rows() == 3, "the first snapshot is appended")
    until(lambda: idles(sidecar, "late", 2 * FLOOR), "it idles for long")
    late.write()
    until(lambda: out.rows() == 6, "the second one is appended")
    query.processAllAvailable()
    assert sidecar.flush()

    assert pages.reported == []
    assert {query.name for query in sidecar.snapshot().queries} >= {"idle", "late", "behind"}
