"""On real Kafka: a topic is deleted or recreated while a query reads it."""

from __future__ import annotations

import pytest
from support.patience import PATIENCE_SECONDS
from support.queries import commits, start, until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.thorough]

FLOOR = 20
"""A busy machine takes seconds to delete a topic and to create it again."""


@pytest.fixture
def replace(kafka):
    """Delete a topic, then recreate it under the same name with one record."""

    def recreate(topic):
        kafka.delete(topic)
        until(
            lambda: topic not in kafka.admin.list_topics(timeout=PATIENCE_SECONDS).topics,
            "the topic is deleted",
        )
        kafka.create(topic)
        kafka.produce(topic, ["new"])

    return recreate


def test_query_that_fails_because_of_its_topic_is_reported_with_the_cause(
    spark, kafka, watch, pages, replace
):
    deleted, recreated = kafka.topic(), kafka.topic()
    sidecar = watch()
    for name, topic in (("deleted", deleted), ("recreated", recreated)):
        kafka.produce(topic, ["old"] * 10)
        start(kafka.stream(spark, topic), name)
    for name in ("deleted", "recreated"):
        commits(sidecar, name)
    kafka.delete(deleted)
    replace(recreated)
    failures = {
        name: pages.wait_for("StreamingQueryFailed", name) for name in ("deleted", "recreated")
    }

    assert "KAFKA_DATA_LOSS" in failures["recreated"].annotations["reason"]
    # Or KAFKA_DATA_LOSS, if Spark's own tasks ask for the topic and thereby recreate it.
    causes = ("UnknownTopicOrPartitionException", "KAFKA_DATA_LOSS")
    assert any(cause in failures["deleted"].annotations["reason"] for cause in causes)
    # Neither speaks of retention: the new log ends before the old offset, or there is none.
    steps = {name: page.annotations["next_steps"] for name, page in failures.items()}
    assert steps["recreated"].startswith("1. The log ends before the offset")
    assert steps["deleted"].startswith(("1. The topic, or a partition", "1. The log ends before"))
    assert {what for what, _ in (page.what for page in pages.pages)} == {"StreamingQueryFailed"}


def test_recreated_topic_is_reported_until_it_reaches_the_old_offset(
    spark, kafka, watch, pages, replace
):
    """With failOnDataLoss=false Spark reports nothing, and reads nothing until offsets catch up."""
    topic = kafka.topic()
    kafka.produce(topic, ["old"] * 10)
    sidecar = watch(stall_floor_seconds=FLOOR, source_interval_seconds=0.5)
    query = start(kafka.stream(spark, topic, failOnDataLoss="false"), "recreated")
    commits(sidecar, "recreated")
    replace(topic)

    reason = until(lambda: rewound(sidecar), "the offsets went back")
    assert f"{topic}/0 went back from 10 to 1" in reason
    assert query.isActive
    kafka.produce(topic, ["more"] * 20)
    until(lambda: not rewound(sidecar), "it reads on")
    # It may have planned a batch before the new record: then it has passed over none.
    names = {name for name, _ in (page.what for page in pages.pages)}
    assert names <= {"StreamingOffsetsRewound", "StreamingDataLossRisk"}


def rewound(sidecar):
    """The reason of the alert that offsets went back, while it is open."""
    name = "StreamingOffsetsRewound"
    alerts = (alert for alert in sidecar.alerts() if alert.name == name)
    return next((alert.annotations["reason"] for alert in alerts), "")
