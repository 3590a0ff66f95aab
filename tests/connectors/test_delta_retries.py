"""A MERGE on a real Delta table that is refused each time and tried again becomes critical."""

from __future__ import annotations

import threading

import pytest
from support.queries import commits, rate, shown, start, until
from support.tables import DeltaTable

pytestmark = [pytest.mark.spark, pytest.mark.delta]

FLOOR = 4
CRITICAL = 3.0
PATIENCE = 90


def merge(batch, table, sign):
    batch.selectExpr(f"{sign} * value AS id").createOrReplaceTempView("changes")
    batch.sparkSession.sql(
        f"MERGE INTO {table} t USING changes c ON t.id = c.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def alerts_of(sidecar, name):
    """The firing alerts of a query as (severity, alertname)."""
    labels = (one.labels for one in sidecar.alerts())
    return {(one["severity"], one["alertname"]) for one in labels if one["query"] == name}


def test_merge_that_is_refused_and_retried_for_ever_becomes_critical(spark, watch, tmp_path):
    table = DeltaTable(spark, tmp_path / "positive").write()
    table.sql("ALTER TABLE {} ADD CONSTRAINT positive CHECK (id >= 0)")
    refused, wrong, free = [], threading.Event(), threading.Event()

    def merge_until_accepted(batch):
        while not free.is_set():
            try:
                merge(batch, table, -1 if wrong.is_set() else 1)
            except Exception as error:
                refused.append(str(error))
            else:
                return

    query = start(rate(spark, 1), "orders", lambda batch, _: merge_until_accepted(batch))
    until(lambda: len(query.recentProgress) > 3, "MERGE is accepted", timeout=PATIENCE)
    sidecar = watch(stall_floor_seconds=FLOOR, slow_critical_factor=CRITICAL)
    commits(sidecar, "orders", timeout=PATIENCE)
    assert not alerts_of(sidecar, "orders")
    wrong.set()
    try:
        until(lambda: alerts_of(sidecar, "orders"), "the warning fires", timeout=PATIENCE)
        assert {severity for severity, _ in alerts_of(sidecar, "orders")} == {"warning"}
        critical = ("critical", "StreamingBatchSlow")
        window = shown(sidecar, "orders").window_seconds
        until(
            lambda: critical in alerts_of(sidecar, "orders"),
            f"critical within {CRITICAL} windows of {window} s",
            timeout=CRITICAL * window + PATIENCE,
        )
    finally:
        free.set()

    assert len(refused) > 1
    assert all("CHECK constraint positive" in one for one in refused)
