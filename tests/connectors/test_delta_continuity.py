"""On real Delta tables: where a run begins is compared with where the run before it ended."""

from __future__ import annotations

import os
import time

import pytest
from support.connectors import DeltaTable
from support.queries import commits, start, until

pytestmark = [pytest.mark.spark, pytest.mark.delta, pytest.mark.nightly]

RISK = "StreamingDataLossRisk"
LAX = {"failOnDataLoss": "false"}


@pytest.fixture
def table(spark, tmp_path):
    """A table of four versions, 0 to 3."""
    return DeltaTable(spark, tmp_path / "orders").write(4)


@pytest.fixture
def sidecar(watch):
    return watch(source_interval_seconds=0.2)


def known(sidecar):
    return sidecar._require_runtime().evaluated.snapshot.labels().get("orders")


def polled_at(sidecar, version):
    """Wait until the table was polled while the query was at a version."""

    def polled():
        query = known(sidecar)
        return query is not None and any(
            poll.committed.get("", min(poll.begins.values(), default=None)) == version
            for poll in query.checkpoint.polls.values()
        )

    until(polled, f"polled at {version}")


def read(sidecar, table, checkpoint, **options):
    """Read all of the table and one more version, in two batches, and stop as planned."""
    query = start(table.stream(**options), "orders", checkpoint=checkpoint)
    query.processAllAvailable()
    table.write()
    query.processAllAvailable()
    commits(sidecar, "orders")
    polled_at(sidecar, table.history()[-1] + 1)
    sidecar.expect_stop("orders")
    query.stop()


def reasons(sidecar):
    return [alert.annotations["reason"] for alert in sidecar.alerts() if alert.name == RISK]


@pytest.fixture
def lax_delta(spark):
    """Delta before 4.4 does not ask whether the last batch can be read once more."""
    name = "spark.databricks.delta.streaming.trailingCommitValidation.enabled"
    spark.conf.set(name, "false")
    yield
    spark.conf.unset(name)


def long_ago(table):
    """The last checkpoint of the table, after which its log was cleaned, was an hour ago."""
    checkpoint = table.folder / "_delta_log" / "_last_checkpoint"
    os.utime(checkpoint, (time.time() - 3600,) * 2)


@pytest.mark.usefixtures("lax_delta")
def test_versions_deleted_during_a_planned_stop_are_reported(table, sidecar, pages, tmp_path):
    read(sidecar, table, tmp_path / "cp", **LAX)
    first = table.write(2).clean()
    long_ago(table)
    assert first == 8
    query = start(table.stream(**LAX), "orders", checkpoint=tmp_path / "cp")
    query.processAllAvailable()

    page = pages.wait_for(RISK, "orders")

    assert page.labels["severity"] == "critical"
    reason = page.annotations["reason"]
    assert reason.startswith(f"DeltaSource[file:{table.folder}]: ")
    assert "3 versions from 5 to 7 were deleted before they were read" in reason


def test_versions_deleted_while_a_query_waits_for_its_trigger_are_reported(
    table, sidecar, pages, tmp_path
):
    query = start(table.stream(**LAX), "orders", checkpoint=tmp_path / "cp", trigger="1 day")
    commits(sidecar, "orders")
    polled_at(sidecar, 4)
    table.write(2).clean()

    reason = pages.wait_for(RISK, "orders").annotations["reason"]

    assert "3 versions were deleted before they were read" in reason
    sidecar.expect_stop("orders")
    query.stop()
    lost = "3 versions from 4 to 6 were deleted before they were read"
    until(lambda: lost in "".join(reasons(sidecar)), "it is remembered")


def test_lost_checkpoint_with_the_latest_version_is_reported_until_the_versions_are_read(
    table, sidecar, pages, tmp_path
):
    read(sidecar, table, tmp_path / "cp")
    table.write(3)
    latest = table.stream(startingVersion="latest")
    query = start(latest, "orders", checkpoint=tmp_path / "lost")

    reason = pages.wait_for(RISK, "orders").annotations["reason"]

    assert "3 versions from 5 to 7 were not read: its new checkpoint begins at 8" in reason
    assert "they are still retained: start from version 5" in reason
    sidecar.expect_stop("orders")
    query.stop()
    start(table.stream(startingVersion=5), "orders", checkpoint=tmp_path / "third")
    pages.wait_for(RISK, "orders", status="resolved")


def from_the_next_version(table):
    table.write(2)
    return {"startingVersion": 5}


def with_a_snapshot(table):
    table.write(2)
    return {}


def at_the_latest_version_that_was_read(_table):
    return {"startingVersion": "latest"}


def behind_maintenance(table):
    table.sql("OPTIMIZE {}")
    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('a' = 'b')")
    table.sql("VACUUM {}")
    return {"startingVersion": "latest"}


def on_another_table(table):
    table.drop()
    table.write(9)
    return {"startingVersion": "latest"}


@pytest.mark.parametrize(
    "begin",
    [
        from_the_next_version,
        with_a_snapshot,
        at_the_latest_version_that_was_read,
        behind_maintenance,
        on_another_table,
    ],
)
def test_new_checkpoint_that_skips_no_rows_is_not_reported(table, sidecar, pages, tmp_path, begin):
    read(sidecar, table, tmp_path / "cp")
    options = begin(table)
    query = start(table.stream(**options), "orders", checkpoint=tmp_path / "new")
    query.processAllAvailable()
    until(lambda: begins(sidecar), "it is known where the checkpoint begins")
    table.write()
    query.processAllAvailable()
    polled_at(sidecar, table.history()[-1] + 1)
    assert sidecar.flush()
    assert pages.reported == []


def begins(sidecar):
    return [poll.begins for poll in known(sidecar).checkpoint.polls.values() if poll.begins]


@pytest.mark.usefixtures("lax_delta")
def test_versions_that_were_read_and_are_deleted_are_not_reported(table, sidecar, pages, tmp_path):
    read(sidecar, table, tmp_path / "cp", **LAX)
    table.sql("OPTIMIZE {}")
    first = table.clean()
    query = start(table.stream(**LAX), "orders", checkpoint=tmp_path / "read")
    query.processAllAvailable()
    polled_at(sidecar, first + 1)
    assert sidecar.flush()
    assert pages.reported == []
