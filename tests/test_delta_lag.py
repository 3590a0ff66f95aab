"""Lag in versions of Delta tables: on real tables, against Delta's own history."""

from __future__ import annotations

import pytest
from support.queries import Trap, shown, start, until

pytestmark = [pytest.mark.spark, pytest.mark.delta]


def test_lag(spark, watch, tmp_path):
    table = str(tmp_path / "t")
    for _ in range(3):
        spark.range(3).write.format("delta").mode("append").save(table)
    sidecar = watch(source_interval_seconds=0.5)
    trap = Trap()
    query = start(spark.readStream.format("delta").load(table), "hung", trap)
    until(lambda: shown(sidecar, "hung") and shown(sidecar, "hung").lag_offsets == 0, "no lag")
    trap.hold.set()
    spark.range(3).write.format("delta").mode("append").save(table)
    assert trap.held.wait(10)
    spark.range(3).write.format("delta").mode("append").save(table)
    spark.range(3).write.format("delta").mode("append").save(table)
    until(lambda: shown(sidecar, "hung").lag_offsets == 3, "lag")
    trap.hold.clear()
    trap.free.set()
    until(lambda: shown(sidecar, "hung").lag_offsets == 0, "lag gone")
    print(sidecar.status if hasattr(sidecar, "status") else "")
    query.stop()
