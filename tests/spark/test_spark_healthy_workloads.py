"""On real Spark: healthy queries that appear unhealthy, all in one driver, raise no alert."""

from __future__ import annotations

import pytest
from support.healthy_workloads import AFTER, BEFORE, GRACE, SETTINGS, TREND
from support.queries import until
from support.spark_harness import Diary, SparkHarness

# A busy machine takes minutes to start all workloads.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

WORKLOADS = (*BEFORE, *AFTER)
WATCH_SECONDS = 45
assert 2 * max(GRACE, TREND) < WATCH_SECONDS


@pytest.fixture
def harness(spark, watch, tmp_path):
    """Depends on ``watch``, so that the sidecar closes before its queries stop."""
    harness = SparkHarness(spark, tmp_path)
    yield harness
    harness.close()


def test_healthy_queries_raise_no_alert(harness, watch, pages):
    queries = {workload.name: workload.start(harness) for workload in BEFORE}
    until(lambda: all(harness.committed(name) > 1 for name in queries), "all commit", 120)
    sidecar = watch(**SETTINGS)
    diary = Diary(harness, sidecar)
    queries |= {workload.name: workload.start(harness) for workload in AFTER}
    labels = {name: query.name or query.id[:8] for name, query in queries.items()}

    until(lambda: len(diary[labels["planned_stop"]].commits) > 6, "the planned query commits", 60)
    sidecar.expect_stop("planned_stop")
    queries["planned_stop"].stop()
    brisk = [labels[workload.name] for workload in WORKLOADS if not workload.leisurely]
    until(lambda: diary.seconds > WATCH_SECONDS, "the watch time has passed", 90)
    until(
        lambda: diary.seconds > 2 * max(diary[label].window for label in brisk),
        "every window has passed twice",
        90,
    )

    assert pages.reported == []
    assert sidecar.alerts() == ()
    lives = {workload: diary[labels[workload.name]] for workload in WORKLOADS}
    until(lambda: diary["restarted"].state == "running", "the newest restart is over")
    assert {workload.name: life.state for workload, life in lives.items()} == {
        workload.name: workload.state for workload in WORKLOADS
    }
    unlike = [a.name for a, life in lives.items() if not a.lived(life, queries[a.name])]
    assert unlike == []
    # Its events report batch 2; its commit log never contains it.
    assert harness.committed("async_tracking_idle") == 0
