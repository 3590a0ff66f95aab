"""On real Spark: healthy queries that appear unhealthy, several in one driver, raise no alert."""

from __future__ import annotations

import pytest
from support.healthy_workloads import AFTER, BEFORE, GRACE, SETTINGS, TREND, all_live
from support.queries import until
from support.spark_harness import Diary

# A busy machine takes minutes to start all workloads.
pytestmark = [pytest.mark.spark, pytest.mark.every_spark, pytest.mark.timeout(900)]

WATCH_SECONDS = 42
assert 2 * max(GRACE, TREND) < WATCH_SECONDS


def test_healthy_queries_raise_no_alert(harness, watch, pages):
    queries = {workload.name: workload.start(harness) for workload in BEFORE}
    until(lambda: all(harness.committed(name) > 1 for name in queries), "all commit")
    sidecar = watch(**SETTINGS)
    diary = Diary(harness, sidecar)
    queries |= {workload.name: workload.start(harness) for workload in AFTER}

    until(lambda: len(diary["planned_stop"].commits) > 6, "the planned query commits")
    sidecar.expect_stop("planned_stop")
    queries["planned_stop"].stop()
    until(lambda: diary.seconds > WATCH_SECONDS, "the watch time has passed")
    all_live((*BEFORE, *AFTER), diary, queries)

    assert pages.reported == []
    assert sidecar.alerts() == ()
    # Its events report batch 2; its commit log never contains it.
    assert harness.committed("async_tracking_idle") == 0
