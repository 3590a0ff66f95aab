"""On real Spark: a run of ``availableNow`` that has not completed by its time of day."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timezone

import pytest
from support.queries import SPARK_PATIENCE_SECONDS

pytestmark = [pytest.mark.spark]

SIX = datetime(2026, 11, 23, 6, tzinfo=timezone.utc).timestamp()
SECONDS_BEFORE = 3.0
"""The process begins before the deadline, which comes while it runs."""


def test_late_run_is_reported_while_it_runs_and_ends_when_it_completes(
    spark, watch, pages, tmp_path
):
    (tmp_path / "in").mkdir()
    spark.range(3).write.mode("overwrite").parquet(str(tmp_path / "in"))
    sidecar = watch(queries={"nightly": {"complete_by": "06:00"}})
    offset = SIX - SECONDS_BEFORE - time.time()
    sidecar._runtime._worker._wall = lambda: time.time() + offset
    go = threading.Event()
    source = spark.readStream.schema("id long").parquet(str(tmp_path / "in"))
    query = (
        source.writeStream.queryName("nightly")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(lambda batch, _: go.wait(SPARK_PATIENCE_SECONDS))
        .start()
    )
    try:
        page = pages.wait_for("StreamingQueryMissing", "nightly")
    finally:
        go.set()
    assert page.annotations["reason"].startswith(
        "not_completed: no run has completed for 2026-11-23 06:00:00 UTC (06:00 UTC): one has run"
    )
    assert query.awaitTermination(SPARK_PATIENCE_SECONDS)
    pages.wait_for("StreamingQueryMissing", "nightly", status="resolved")
    (shown,) = sidecar.snapshot().queries
    assert (shown.state, shown.complete_by) == ("completed", "2026-11-24T06:00:00.000+00:00")
