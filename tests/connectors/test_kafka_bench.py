"""The test setup itself: a real broker and Spark's own connector."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_spark_reads_what_was_produced(spark, kafka):
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, ["a", "b"], partition=0)
    kafka.produce(topic, ["c"], partition=1)
    kafka.transaction(topic, ["d"])
    rows = spark.read.format("kafka").option("subscribe", topic)
    rows = rows.option("kafka.bootstrap.servers", kafka.bootstrap_servers).load()
    assert {bytes(row["value"]).decode() for row in rows.collect()} == {"a", "b", "c", "d"}


def test_killed_broker_returns_with_its_records(spark, kafka):
    topic = kafka.topic()
    kafka.produce(topic, ["before"])
    kafka.broker.kill()
    kafka.broker.start()
    kafka.produce(topic, ["after"])
    rows = spark.read.format("kafka").option("subscribe", topic)
    rows = rows.option("kafka.bootstrap.servers", kafka.bootstrap_servers).load()
    assert [bytes(row["value"]).decode() for row in rows.collect()] == ["before", "after"]
