"""Retention and stuck queries: the alert comes before a real broker deletes the first record."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests
from support import connectors
from support.patience import PATIENCE_SECONDS
from support.queries import Trap, commits, offsets_of, start, until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.thorough]

KEEPS_SECONDS = 80.0
"""A busy machine has a third of it from the alert to the first loss."""
QUICK = {
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
    "log.segment.delete.delay.ms": "100",
}
SETTINGS = {
    "source_interval_seconds": 0.5,
    "stall_floor_seconds": 6.0,
    "trend_window_seconds": 5.0,
    "data_loss_warning_ratio": 0.05,
}


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """A broker that deletes expired records within a second."""
    broker = connectors.Kafka(tmp_path_factory.mktemp("hasty"), QUICK)
    yield broker
    broker.close()


@contextmanager
def feeding(kafka, topic) -> Iterator[None]:
    """Produce ten records a second."""
    stop = threading.Event()

    def feed():
        number = 0
        while not stop.wait(0.1):
            kafka.produce(topic, [f"record {number}"])
            number += 1

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class TrappedQueries:
    """Queries on one topic, each with a trap of its own; all traps are released at the end."""

    def __init__(self, spark, kafka, topic, sidecar) -> None:
        self.spark, self.kafka, self.topic, self.sidecar = spark, kafka, topic, sidecar
        self.traps: dict[str, Trap] = {}
        self.queries: dict[str, Any] = {}

    def begin(self, name, **options) -> None:
        """Start a query and wait until it commits."""
        self.traps[name] = Trap()
        stream = self.kafka.stream(self.spark, self.topic, failOnDataLoss="false", **options)
        self.queries[name] = start(stream, name, self.traps[name])
        commits(self.sidecar, name)

    def committed(self, name) -> int:
        """The first offset that the query has not read, according to Spark."""
        ended = self.queries[name].lastProgress["sources"][0]["endOffset"]
        return offsets_of(ended)[self.topic]["0"]

    def used_ratio(self, name) -> float | None:
        """The used share of the retention, according to the metrics."""
        served = requests.get(f"{self.sidecar.url}/metrics", timeout=PATIENCE_SECONDS).text
        ratio = re.search(rf'retention_used_ratio{{.*query="{name}".*}} (\S+)', served)
        return float(ratio[1]) if ratio else None

    def close(self) -> None:
        for trap in self.traps.values():
            trap.release()


@pytest.fixture
def workload(spark, hasty, watch):
    workloads = []

    def build(topic):
        workloads.append(TrappedQueries(spark, hasty, topic, watch(**SETTINGS)))
        return workloads[-1]

    yield build
    for queries in workloads:
        queries.close()


def reasons(sidecar, query, *severities):
    """The reasons of the data loss alerts that fire now, also those that join an incident."""
    return [
        alert.annotations["reason"]
        for alert in sidecar.alerts()
        if (alert.name, alert.labels["query"]) == ("StreamingDataLossRisk", query)
        and alert.labels["severity"] in (severities or ("warning", "critical"))
    ]


@pytest.mark.nightly
def test_data_loss_risk_is_reported_before_the_first_record_is_lost(hasty, workload, pages):
    topic = hasty.topic(retention_ms=str(int(KEEPS_SECONDS * 1000)), segment_ms="1000")
    load = workload(topic)
    with feeding(hasty, topic):
        for name in ("healthy", "hung", "dead"):
            load.begin(name)
        load.traps["hung"].hold.set()
        load.traps["dead"].die.set()
        pages.wait_for("StreamingQueryFailed", "dead")
        pages.wait_for("StreamingQueryStalled", "hung")
        # This query starts at the first retained offset and outpaces deletion.
        load.begin("catching up", maxOffsetsPerTrigger=6)
        warned = until(lambda: reasons(load.sidecar, "dead", "warning"), "a warning comes first")
        assert "of its retention time is used up" in warned[0]
        for name in ("hung", "dead"):
            (reason, *_) = until(
                lambda name=name: reasons(load.sidecar, name, "critical"), f"{name}: critical"
            )
            assert "of its retention time is used up" in reason
            assert hasty.edges(topic)[0] <= load.committed(name), (
                "reported, and nothing is lost yet"
            )
        until(lambda: hasty.edges(topic)[0] > load.committed("hung"), "records are deleted")
        until(
            lambda: "were deleted before they" in reasons(load.sidecar, "hung")[0],
            "the loss is reported",
        )
        load.traps["hung"].release()
        pages.wait_for("StreamingDataLossRisk", "hung", status="resolved")
    # That of the dead query joins its incident. The traps leave their batches unread.
    assert {page.what for page in pages.pages if page.what[0] != "StreamingInputMissing"} == {
        ("StreamingQueryFailed", "dead"),
        ("StreamingQueryStalled", "hung"),
        ("StreamingDataLossRisk", "hung"),
    }


def test_topic_without_retention_time_is_evaluated_by_deleted_offsets(hasty, workload, pages):
    topic = hasty.topic(retention_ms="-1", retention_bytes="-1")
    hasty.produce(topic, ["x"])
    load = workload(topic)
    load.begin("held")
    hasty.produce(topic, ["x"] * 99)
    until(lambda: load.committed("held") == 100, "all is read")
    load.traps["held"].hold.set()
    hasty.produce(topic, ["x"] * 100)
    pages.wait_for("StreamingQueryStalled", "held")
    assert reasons(load.sidecar, "held") == []
    for edge in (10, 20):
        hasty.forget(topic, edge)
        used = pytest.approx(100 / (200 - edge))
        until(lambda used=used: load.used_ratio("held") == used, "the first offset moves")
    until(lambda: reasons(load.sidecar, "held"), "the risk joins the incident")
    assert "of what the topic retains" in reasons(load.sidecar, "held")[0]
    hasty.forget(topic, 130)
    until(
        lambda: "30 offsets were deleted" in reasons(load.sidecar, "held")[0],
        "the loss is reported",
    )
    load.traps["held"].release()
    hasty.produce(topic, ["x"])
    pages.wait_for("StreamingDataLossRisk", "held", status="resolved")
