"""Checkpoints on other file systems of Hadoop, and storage errors."""

from __future__ import annotations

import logging

import pytest
from support.queries import Trap, commits, rate, start, until, warm

from querypulse.listener.commit_log import COMMITS, StorageError
from querypulse.listener.spark.storage import SparkStorage

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

FLOOR = 10


@pytest.mark.nightly
def test_stall_is_reported_with_its_commit_log_and_without_one_that_cannot_be_read(
    spark, watch, pages, caplog, tmp_path
):
    """The mounts of ``viewfs:`` are settings of one session."""
    caplog.set_level(logging.WARNING, "querypulse")
    theirs, mounted, closed = spark.newSession(), Trap(), Trap()
    theirs.conf.set("fs.viewfs.mounttable.pulse.link./jobs", f"file://{tmp_path}")
    (tmp_path / "mounted").mkdir()
    warm(start(rate(theirs), "mounted", mounted, checkpoint="viewfs://pulse/jobs/mounted"))
    warm(start(rate(spark), "closed", closed, checkpoint=tmp_path / "closed"))
    sidecar = watch(stall_floor_seconds=FLOOR)
    for name in ("mounted", "closed"):
        commits(sidecar, name, 2)
    with mounted.holding(), closed.holding():
        (tmp_path / "closed").rename(tmp_path / "away")
        read = pages.wait_for("StreamingQueryStalled", "mounted").annotations
        unread = pages.wait_for("StreamingQueryStalled", "closed").annotations
        refused = "cannot read the checkpoint of closed"
        until(lambda: refused in caplog.text, "the refusal is logged")
        (tmp_path / "away").rename(tmp_path / "closed")
    for name in ("mounted", "closed"):
        pages.wait_for("StreamingQueryStalled", name, status="resolved")

    assert "planned, never committed" in read["commit_log"]
    assert "/closed cannot be seen" in caplog.text
    assert "batch_hung" in unread["reason"]
    assert "commit_log" not in unread
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


@pytest.mark.parametrize(("place", "error"), UNREADABLE.items())
def test_unreadable_storage_gives_a_short_error(spark, place, error):
    with pytest.raises(StorageError, match=error) as refused:
        SparkStorage(spark).open(place).files(COMMITS)

    assert len(str(refused.value)) <= 200
    assert "\n" not in str(refused.value)
