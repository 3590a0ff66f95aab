"""On real Kafka: queries that look unhealthy but are healthy raise no alert."""

from __future__ import annotations

import pytest
from support.healthy_workloads import FLOOR, TREND
from support.kafka_harness import KafkaHarness
from support.kafka_workloads import AFTER, BEFORE, SETTINGS, rows
from support.queries import until
from support.spark_harness import Diary

# A busy machine takes minutes to start all workloads.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.delta,
    pytest.mark.thorough,
    pytest.mark.timeout(900),
]

WORKLOADS = (*BEFORE, *AFTER)
WATCH_SECONDS = 40
assert 2 * max(FLOOR, TREND) < WATCH_SECONDS


@pytest.fixture
def harness(spark, kafka, watch, tmp_path):
    """Depends on ``watch`` so that it is closed before its queries are stopped."""
    harness = KafkaHarness(spark, tmp_path, kafka)
    yield harness
    harness.close()


def test_healthy_queries_on_kafka_raise_no_alert(harness, watch, pages):
    queries = {workload.name: workload.start(harness) for workload in BEFORE}
    until(lambda: all(harness.committed(name) >= 0 for name in queries), "all commit")
    sidecar = watch(**SETTINGS)
    diary = Diary(harness, sidecar)
    queries |= {workload.name: workload.start(harness) for workload in AFTER}

    until(lambda: diary.seconds > WATCH_SECONDS, "the time is over")
    for workload in WORKLOADS:
        life, query = diary[workload.name], queries[workload.name]
        until(lambda: workload.lived(life, query), f"{workload.name} does as its name says")  # noqa: B023
        until(lambda: life.state in workload.states, f"{workload.name} is {workload.states}")  # noqa: B023

    assert pages.pages == []
    assert sidecar.alerts() == ()
    read = rows(queries["to_delta"])
    table = harness.spark.read.format("delta").load(str(harness.folder("to_delta") / "table"))
    assert table.count() >= read > 5
