"""Checkpoints on other file systems of Hadoop, and storage errors."""

from __future__ import annotations

import logging
import re

import pytest
from support.queries import SPARK_PATIENCE_SECONDS, Trap, commits, rate, start, until, warm

from querypulse.listener.commit_log import COMMITS, StorageError
from querypulse.listener.spark.storage import SparkStorage

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

FLOOR = 10


def read(spark, place):
    return max(SparkStorage(spark).open(str(place)).files(COMMITS), default=None)


def test_checkpoint_is_read_with_the_settings_of_its_session(spark, watch, pages, tmp_path):
    """The mounts of ``viewfs:`` are settings of one session."""
    theirs, trap = spark.newSession(), Trap()
    theirs.conf.set("fs.viewfs.mounttable.pulse.link./jobs", f"file://{tmp_path}")
    (tmp_path / "cp").mkdir()
    warm(start(rate(theirs), "mounted", trap, checkpoint="viewfs://pulse/jobs/cp"))
    sidecar = watch(stall_floor_seconds=FLOOR)
    commits(sidecar, "mounted", 2)
    trap.hold.set()
    assert trap.held.wait(SPARK_PATIENCE_SECONDS)
    try:
        reported = pages.wait_for("StreamingQueryStalled", "mounted").annotations
    finally:
        trap.hold.clear()
        trap.free.set()

    assert "planned, never committed" in reported["commit_log"]


def test_unreadable_checkpoint_is_logged_and_the_stall_still_pages(
    spark, watch, pages, caplog, tmp_path
):
    caplog.set_level(logging.WARNING, "querypulse")
    trap = Trap()
    warm(start(rate(spark), "closed", trap, checkpoint=tmp_path / "cp"))
    sidecar = watch(stall_floor_seconds=FLOOR)
    commits(sidecar, "closed", 2)
    trap.hold.set()
    assert trap.held.wait(SPARK_PATIENCE_SECONDS)
    (tmp_path / "cp").rename(tmp_path / "away")
    try:
        reported = pages.wait_for("StreamingQueryStalled", "closed").annotations
        refused = "cannot read the checkpoint of closed"
        until(lambda: refused in caplog.text, "the refusal is logged")
    finally:
        (tmp_path / "away").rename(tmp_path / "cp")
        trap.hold.clear()
        trap.free.set()
    pages.wait_for("StreamingQueryStalled", "closed", status="resolved")

    assert "/cp cannot be seen" in caplog.text
    assert "batch_hung" in reported["reason"]
    assert "commit_log" not in reported
    assert {what for _, what, _ in pages.reported} == {"StreamingQueryStalled"}


UNREADABLE = {
    "s3a://bucket/cp": "S3AFileSystem not found",
    "abfss://jobs@lake.dfs.core.windows.net/cp": "SecureAzureBlobFileSystem not found",
    "gs://bucket/cp": "GoogleHadoopFileSystem not found|No FileSystem for scheme",
    "webhdfs://127.0.0.1:1/cp": "Connection refused",
    "file:/dev/null/cp": "file:/dev/null/cp cannot be seen",
    "nosuch://host/cp": "nosuch",
    ":": "Expected scheme",
    "": "empty string",
}


def test_unreadable_storage_gives_a_short_error(spark):
    errors = {}
    for place in UNREADABLE:
        with pytest.raises(StorageError) as refused:
            read(spark, place)
        errors[place] = str(refused.value)

    assert {
        place: error for place, error in errors.items() if not re.search(UNREADABLE[place], error)
    } == {}
    assert {
        place: error for place, error in errors.items() if len(error) > 200 or "\n" in error
    } == {}
