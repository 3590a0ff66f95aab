"""On real Kafka: a topic that is deleted, or made anew, under the query that reads it."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import NewTopic
from support.connectors import PATIENCE_SECONDS
from support.queries import commits, start, until

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SETTINGS = {"stall_floor_seconds": 4, "start_grace_seconds": 30, "source_interval_seconds": 0.5}


@pytest.fixture
def replace(kafka):
    """Deletes a topic, and makes one of the same name that holds one record."""

    def again(topic):
        kafka.delete(topic)
        until(lambda: topic not in kafka.admin.list_topics(timeout=5).topics, "it is gone")
        kafka.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_SECONDS)
        kafka.produce(topic, ["new"])

    return again


def test_a_query_that_dies_of_its_topic_is_reported_with_the_cause(
    spark, kafka, watch, pages, replace
):
    deleted, again = kafka.topic(), kafka.topic()
    sidecar = watch(**SETTINGS)
    for name, topic in (("deleted", deleted), ("anew", again)):
        kafka.produce(topic, ["old"] * 10)
        start(kafka.stream(spark, topic), name)
    for name in ("deleted", "anew"):
        commits(sidecar, name)
    kafka.delete(deleted)
    replace(again)
    reported = {
        name: pages.wait_for("StreamingQueryFailed", name, timeout=60)
        for name in ("deleted", "anew")
    }

    assert "KAFKA_DATA_LOSS" in reported["anew"].annotations["reason"]
    # Or the same, where Spark's own tasks ask for the topic and so make it anew.
    causes = ("UnknownTopicOrPartitionException", "KAFKA_DATA_LOSS")
    assert any(cause in reported["deleted"].annotations["reason"] for cause in causes)
    assert {what for what, _ in (page.what for page in pages.pages)} == {"StreamingQueryFailed"}


def test_where_losses_are_allowed_a_topic_made_again_is_reported_until_it_has_come_as_far(
    spark, kafka, watch, pages, replace
):
    """Spark says nothing, and nothing is read until somebody looks."""
    topic = kafka.topic()
    kafka.produce(topic, ["old"] * 10)
    sidecar = watch(**SETTINGS)
    query = start(kafka.stream(spark, topic, failOnDataLoss="false"), "anew")
    commits(sidecar, "anew")
    replace(topic)

    page = pages.wait_for("StreamingOffsetsRewound", "anew", timeout=60)
    assert f"{topic}/0: from 10 back to 1" in page.annotations["reason"]
    assert query.isActive
    kafka.produce(topic, ["more"] * 20)
    pages.wait_for("StreamingOffsetsRewound", "anew", status="resolved", timeout=60)
    assert {page.what for page in pages.pages} == {("StreamingOffsetsRewound", "anew")}
