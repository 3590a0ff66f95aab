"""The bench itself: a real broker and Spark's own connector."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_what_is_produced_is_read_by_spark(spark, kafka):
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, ["a", "b"], partition=0)
    kafka.produce(topic, ["c"], partition=1)
    kafka.transaction(topic, ["d"])
    rows = spark.read.format("kafka").option("subscribe", topic)
    rows = rows.option("kafka.bootstrap.servers", kafka.bootstrap_servers).load()
    assert {bytes(row["value"]).decode() for row in rows.collect()} == {"a", "b", "c", "d"}


def test_a_killed_broker_comes_back_with_what_it_held(spark, kafka):
    topic = kafka.topic()
    kafka.produce(topic, ["before"])
    kafka.broker.kill()
    kafka.broker.start()
    kafka.produce(topic, ["after"])
    rows = spark.read.format("kafka").option("subscribe", topic)
    rows = rows.option("kafka.bootstrap.servers", kafka.bootstrap_servers).load()
    assert [bytes(row["value"]).decode() for row in rows.collect()] == ["before", "after"]
