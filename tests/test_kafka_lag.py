"""Lag as the broker has it: on a real broker, against the broker's own figures."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.connectors import PATIENCE_SECONDS
from support.queries import Trap, start, until

from querypulse.listener.fold import begin
from querypulse.listener.source_report import topic_of
from querypulse.listener.spark_sources import SparkSources

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


class Held:
    """A query that has read what there was, and now hangs in its next batch."""

    def __init__(self, spark, kafka, topics, **options):
        self.spark, self.kafka = spark, kafka
        self.topics = topics
        self.trap = Trap()
        stream = kafka.stream(spark, ",".join(topics), **options)
        self.query = start(stream, f"held-{topics[0]}", self.trap)
        self.query.processAllAvailable()
        self.sources = SparkSources(spark).open(
            begin(self.query.id, self.query.runId, self.query.name, 0.0)
        )

    def hang(self, topic=None):
        """Hang in a batch of one record more."""
        self.trap.hold.set()
        self.kafka.produce(topic or self.topics[0], ["bait"], partition=0)
        assert self.trap.held.wait(PATIENCE_SECONDS)

    def look(self, index=0):
        return self.sources[index].look()

    def read_on(self):
        self.trap.hold.clear()
        self.trap.free.set()
        self.query.processAllAvailable()
        self.trap.free.clear()

    def close(self):
        self.trap.hold.clear()
        self.trap.free.set()
        for source in self.sources.values():
            source.close()
        self.query.stop()


@pytest.fixture
def held(spark, kafka):
    """Starts queries that can be made to hang, on new topics or those named."""
    started = []

    def begin_one(*topics, partitions=1, first=("a", "b"), config=None, **options):
        topics = topics or (kafka.topic(partitions, **(config or {})),)
        for number in range(partitions):
            for topic in topics:
                kafka.produce(topic, first, partition=number)
        started.append(Held(spark, kafka, topics, **options))
        return started[-1]

    yield begin_one
    for one in started:
        one.close()


def ends(kafka, look, isolation="read_uncommitted"):
    """The broker's own figure for each partition, by another client."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "x",
            "isolation.level": isolation,
        }
    )
    try:
        return {
            key: consumer.get_watermark_offsets(
                TopicPartition(topic_of(key), int(key.rpartition("/")[2])), PATIENCE_SECONDS
            )
            for key in look.committed
        }
    finally:
        consumer.close()


def test_where_a_query_stands_is_told_as_the_broker_has_it(held, kafka):
    one = held(partitions=2)
    look = one.look()

    assert look.lag_offsets == 0
    assert ends(kafka, look) == {key: (look.earliest[key], look.latest[key]) for key in look.latest}
    assert look.committed == look.latest == {f"{one.topics[0]}/0": 2, f"{one.topics[0]}/1": 2}
    assert look.waiting_since == {}
    assert look.description == f"KafkaV2[Subscribe[{one.topics[0]}]]"
    assert look.untold == ""


def test_lag_grows_while_the_query_hangs_and_is_gone_when_it_has_read_on(held, kafka):
    one = held(partitions=2)
    one.hang()
    for number in (1, 2, 3):
        kafka.produce(one.topics[0], ["x"] * 10, partition=1)
        assert one.look().lag_offsets == 1 + 10 * number
    one.read_on()

    assert one.look().lag_offsets == 0


def test_the_age_of_what_waits_is_the_first_records_own(held, kafka):
    one = held()
    one.hang()
    began = time.time()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(one.topics[0], "later", timestamp=int((began + 50) * 1000))
    producer.flush(PATIENCE_SECONDS)
    first, second = one.look(), one.look()

    (since,) = first.waiting_since.values()
    assert began - PATIENCE_SECONDS < since < began
    assert second.waiting_since == first.waiting_since


def test_a_record_of_long_ago_has_waited_since_then(held, kafka):
    one = held()
    one.trap.hold.set()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(one.topics[0], "old", timestamp=1_600_000_000_000)
    producer.flush(PATIENCE_SECONDS)
    assert one.trap.held.wait(PATIENCE_SECONDS)

    assert one.look().waiting_since == {f"{one.topics[0]}/0": 1_600_000_000.0}


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_the_markers_of_transactions_are_no_lag(held, kafka, isolation):
    one = held(**{"kafka.isolation.level": isolation})
    kafka.transaction(one.topics[0], ["x", "y"])
    one.query.processAllAvailable()
    until(lambda: one.look().lag_offsets == 0, "it has read all")
    look = one.look()

    assert (
        ends(kafka, look, isolation)[f"{one.topics[0]}/0"][1] == look.latest[f"{one.topics[0]}/0"]
    )
    assert look.waiting_since == {}


def test_an_aborted_transaction_does_not_wait_for_who_reads_committed_ones(held, kafka):
    one = held(**{"kafka.isolation.level": "read_committed"})
    one.hang()
    kafka.transaction(one.topics[0], ["x"] * 5, commit=False)
    look = one.look()
    assert look.latest[f"{one.topics[0]}/0"] - look.committed[f"{one.topics[0]}/0"] == 7
    since = look.waiting_since
    one.read_on()
    one.trap.hold.set()
    kafka.transaction(one.topics[0], ["x"] * 5, commit=False)
    until(lambda: one.look().lag_offsets == 0, "nothing waits")

    assert len(since) == 1
    assert one.look().waiting_since == {}


def test_what_compaction_took_does_not_wait(held, kafka):
    config = {
        "cleanup_policy": "compact",
        "segment_ms": "100",
        "min_cleanable_dirty_ratio": "0.01",
        "max_compaction_lag_ms": "100",
    }
    one = held(config=config)
    one.hang()
    look = one.look()

    assert look.retention_seconds == {}
    assert look.lag_offsets == 1


def test_a_new_partition_counts_from_the_first_commit_on(held, kafka):
    one = held()
    one.hang()
    kafka.add_partitions(one.topics[0], 2)
    until(lambda: _produces(kafka, one.topics[0], partition=1), "the partition is there")
    assert one.look().lag_by_partition == {f"{one.topics[0]}/0": 1}
    one.read_on()

    until(
        lambda: one.look().lag_by_partition == {f"{one.topics[0]}/{n}": 0 for n in (0, 1)},
        "both are read",
    )


def _produces(kafka, topic, partition):
    try:
        kafka.produce(topic, ["new"], partition=partition)
    except Exception:
        return False
    return True


def test_a_deleted_topic_is_left_out_and_spoils_no_other(held, kafka):
    gone, stays = kafka.topic(), kafka.topic()
    one = held(gone, stays, failOnDataLoss="false")
    one.hang(stays)
    kafka.delete(gone)
    began = time.monotonic()
    look = until(lambda: (seen := one.look()) and f"{gone}/0" not in seen.latest and seen, "gone")

    assert look.lag_by_partition == {f"{stays}/0": 1}
    assert look.untold == ""
    assert time.monotonic() - began < 3
    kafka.create(gone)
    kafka.produce(gone, ["new"])
    assert one.look().lag_by_partition == {f"{stays}/0": 1, f"{gone}/0": 0}


def test_how_long_records_are_kept_is_told_by_topic(held, kafka):
    short, forever, sized = kafka.topic(retention_ms="60000"), kafka.topic(retention_ms="-1"), None
    sized = kafka.topic(retention_ms="-1", retention_bytes="1000000")
    compacted = kafka.topic(cleanup_policy="compact", retention_ms="60000")
    one = held(short, forever, sized)
    look = one.look()

    assert look.retention_seconds == {short: 60.0}
    assert look.bounded_by_size == {sized}
    assert compacted
