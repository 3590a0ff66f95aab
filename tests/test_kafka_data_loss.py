"""Retention against queries that do not read: told before a real broker deletes the first record."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests
from confluent_kafka import Consumer, TopicPartition
from support import connectors
from support.queries import Trap, commits, start, until

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

KEEPS_SECONDS = 20.0
QUICK = {
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
    "log.segment.delete.delay.ms": "100",
}
SETTINGS = {
    "source_interval_seconds": 0.5,
    "stall_floor_seconds": 3.0,
    "stall_tolerance": 0.0,
    "trend_window_seconds": 5.0,
    "start_grace_seconds": 20.0,
    "data_loss_warning_ratio": 0.4,
    "data_loss_critical_ratio": 0.7,
}


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """A broker that deletes what is too old within a second."""
    broker = connectors.Kafka(tmp_path_factory.mktemp("hasty"), QUICK)
    yield broker
    broker.close()


@contextmanager
def fed(kafka, topic) -> Iterator[None]:
    """Ten records a second."""
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


def first_kept(kafka, topic) -> int:
    """The broker's own word, by another client."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "witness"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)[0]
    finally:
        consumer.close()


class Play:
    """Queries on one topic: each with a trap of its own, all let go at the end."""

    def __init__(self, spark, kafka, topic, sidecar) -> None:
        self.spark, self.kafka, self.topic, self.sidecar = spark, kafka, topic, sidecar
        self.traps: dict[str, Trap] = {}
        self.queries: dict[str, Any] = {}

    def begin(self, name, **options) -> None:
        """Start a query, and wait until it is at work."""
        self.traps[name] = Trap()
        stream = self.kafka.stream(self.spark, self.topic, failOnDataLoss="false", **options)
        self.queries[name] = start(stream, name, self.traps[name])
        commits(self.sidecar, name)

    def committed(self, name) -> int:
        """The first offset that it has not read, by Spark's own word."""
        ended = json.loads(self.queries[name].lastProgress["sources"][0]["endOffset"])
        return ended[self.topic]["0"]

    def used_ratio(self, name) -> float | None:
        """How much of its retention is used up, as the metrics have it."""
        served = requests.get(f"{self.sidecar.url}/metrics", timeout=10).text
        found = re.search(rf'retention_used_ratio{{.*query="{name}".*}} (\S+)', served)
        return float(found[1]) if found else None

    def let_go(self, name) -> None:
        self.traps[name].hold.clear()
        self.traps[name].free.set()

    def close(self) -> None:
        for name in self.traps:
            self.let_go(name)


@pytest.fixture
def play(spark, hasty, watch):
    plays = []

    def play(topic):
        plays.append(Play(spark, hasty, topic, watch(**SETTINGS)))
        return plays[-1]

    yield play
    for one in plays:
        one.close()


def dangers(pages, query, severity="critical"):
    return [
        page.annotations["reason"]
        for page in pages.pages
        if page.what == ("StreamingDataLossRisk", query) and page.labels["severity"] == severity
    ]


def reasons(sidecar, query):
    """Why data is in danger now."""
    reported = [one for one in sidecar.alerts() if one.name == "StreamingDataLossRisk"]
    return [one.annotations["reason"] for one in reported if one.labels["query"] == query]


def test_a_danger_is_reported_before_the_first_record_is_lost(hasty, play, pages):
    topic = hasty.topic(retention_ms=str(int(KEEPS_SECONDS * 1000)), segment_ms="1000")
    stage = play(topic)
    with fed(hasty, topic):
        for name in ("well", "hung", "dead"):
            stage.begin(name)
        stage.traps["hung"].hold.set()
        stage.traps["dead"].die.set()
        pages.wait_for("StreamingQueryFailed", "dead")
        pages.wait_for("StreamingQueryStalled", "hung")
        # It starts from the edge and outruns it.
        stage.begin("catching up", maxOffsetsPerTrigger=6)
        for name in ("hung", "dead"):
            (reason, *_) = until(lambda name=name: dangers(pages, name), f"{name}: critical")
            assert "of its retention time is used up" in reason
            assert first_kept(hasty, topic) <= stage.committed(name), "told, and nothing is lost"
        until(lambda: first_kept(hasty, topic) > stage.committed("hung"), "records are deleted")
        until(lambda: "were deleted before they" in reasons(stage.sidecar, "hung")[0], "it is told")
        stage.let_go("hung")
        pages.wait_for("StreamingDataLossRisk", "hung", status="resolved")
    assert dangers(pages, "dead", "warning"), "a warning comes first"
    assert {page.what for page in pages.pages} == {
        ("StreamingQueryFailed", "dead"),
        ("StreamingQueryStalled", "hung"),
        ("StreamingDataLossRisk", "hung"),
        ("StreamingDataLossRisk", "dead"),
    }


def test_a_topic_that_keeps_no_time_is_evaluated_by_what_goes(hasty, play, pages):
    topic = hasty.topic(retention_ms="-1", retention_bytes="-1")
    hasty.produce(topic, ["x"])
    stage = play(topic)
    stage.begin("held")
    hasty.produce(topic, ["x"] * 99)
    until(lambda: stage.committed("held") == 100, "all is read")
    stage.traps["held"].hold.set()
    hasty.produce(topic, ["x"] * 100)
    pages.wait_for("StreamingQueryStalled", "held")
    assert dangers(pages, "held", "warning") == []
    for edge in (10, 20):
        hasty.forget(topic, edge)
        used = pytest.approx(100 / (200 - edge))
        until(lambda used=used: stage.used_ratio("held") == used, "the edge is seen to move")
    pages.wait_for("StreamingDataLossRisk", "held")
    assert "of what the topic retains" in reasons(stage.sidecar, "held")[0]
    hasty.forget(topic, 130)
    until(lambda: "30 offsets were deleted" in reasons(stage.sidecar, "held")[0], "it is told")
    stage.let_go("held")
    hasty.produce(topic, ["x"])
    pages.wait_for("StreamingDataLossRisk", "held", status="resolved")
