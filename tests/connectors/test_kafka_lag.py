"""Lag measured at a real broker, compared with the broker's own figures."""

from __future__ import annotations

import time

import pytest
import requests
from confluent_kafka import KafkaException, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families
from support.patience import PATIENCE_SECONDS
from support.queries import Trap, offsets_of, shown, start, until

from querypulse.listener.sources.kafka import KafkaSource
from querypulse.listener.sources.reader import SparkSources
from querypulse.listener.state.query import Query
from querypulse.listener.state.run import Run

OURS = {"app", "query"}
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.thorough]


def query_state(query):
    """The state of a query of Spark's that no signal has shown yet."""
    run = Run(run_id=query.runId, started_at=0.0)
    return Query(query_id=query.id, name=query.name, label=query.name, run=run)


class HeldQuery:
    """A query that has read everything so far and can be made to hang in its next batch."""

    def __init__(self, spark, kafka, topics, finds=None, **options):
        self.spark, self.kafka = spark, kafka
        self.topics = topics
        self.trap = Trap()
        stream = kafka.stream(spark, ",".join(topics), **options)
        self.query = start(stream, f"held-{topics[0]}", self.trap)
        self.query.processAllAvailable()
        self.sources = (finds or SparkSources(spark)).open(query_state(self.query))

    def hang(self, topic=None):
        """Hang in a batch with one more record."""
        self.trap.hold.set()
        self.kafka.produce(topic or self.topics[0], ["bait"], partition=0)
        assert self.trap.held.wait(PATIENCE_SECONDS)

    def poll(self, index=0):
        return self.sources[index].poll()

    def read_on(self):
        self.trap.release()
        self.query.processAllAvailable()
        self.trap.free.clear()

    def close(self):
        self.trap.release()
        for source in self.sources.values():
            source.close()
        self.query.stop()


@pytest.fixture
def held(spark, kafka):
    """Start queries that can be made to hang, on new or given topics."""
    started = []

    def begin_one(*topics, partitions=1, first=("a", "b"), config=None, **options):
        topics = topics or (kafka.topic(partitions, **(config or {})),)
        for number in range(partitions):
            for topic in topics:
                kafka.produce(topic, first, partition=number)
        started.append(HeldQuery(spark, kafka, topics, **options))
        return started[-1]

    yield begin_one
    for job in started:
        job.close()


def ends(kafka, partitions, **config):
    """The first and last offset of each partition, as another client reads them from the broker."""
    places = {key: key.rpartition("/")[::2] for key in partitions}
    return {key: kafka.edges(topic, int(n), **config) for key, (topic, n) in places.items()}


def test_position_of_a_query_matches_the_brokers_figures(held, kafka):
    job = held(partitions=2)
    poll = job.poll()

    assert poll.lag_offsets == 0
    assert ends(kafka, poll.committed) == {
        key: (poll.earliest[key], poll.latest[key]) for key in poll.latest
    }
    assert poll.committed == poll.latest == {f"{job.topics[0]}/0": 2, f"{job.topics[0]}/1": 2}
    assert poll.waiting_since == {}
    assert poll.description == f"KafkaV2[Subscribe[{job.topics[0]}]]"
    assert poll.missing_reason == ""


def test_records_read_and_deleted_during_a_poll_do_not_count_as_lost(held, kafka, monkeypatch):
    job = held()
    topic, led = job.topics[0], KafkaSource._led

    def read_and_delete_first(admin, topics):
        kafka.produce(topic, ["x"] * 10)
        job.query.processAllAvailable()
        kafka.forget(topic, 12)
        return led(admin, topics)

    monkeypatch.setattr(KafkaSource, "_led", read_and_delete_first)
    poll = job.poll()

    assert poll.earliest == poll.committed == poll.latest == {f"{topic}/0": 12}
    assert poll.lag_offsets == 0


def test_lag_and_its_age_grow_while_the_query_hangs_and_end_when_it_catches_up(held, kafka):
    job = held(partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    job.trap.hold.set()
    producer.produce(job.topics[0], "old", partition=0, timestamp=1_600_000_000_000)
    producer.flush(PATIENCE_SECONDS)
    assert job.trap.held.wait(PATIENCE_SECONDS)
    for number in (1, 2):
        producer.produce(
            job.topics[0], "later", partition=0, timestamp=int((time.time() + 50) * 1000)
        )
        producer.flush(PATIENCE_SECONDS)
        kafka.produce(job.topics[0], ["x"] * 9, partition=1)
        poll = job.poll()
        assert poll.lag_offsets == 1 + 10 * number
        assert poll.waiting_since[f"{job.topics[0]}/0"] == 1_600_000_000.0
    job.read_on()

    assert (job.poll().lag_offsets, job.poll().waiting_since) == (0, {})


def test_transaction_markers_are_no_lag(held, kafka):
    for isolation in ("read_committed", "read_uncommitted"):
        job = held(**{"kafka.isolation.level": isolation})
        kafka.transaction(job.topics[0], ["x", "y"])
        job.query.processAllAvailable()
        until(lambda: job.poll().lag_offsets == 0, f"{isolation}: the query has read all")  # noqa: B023
        poll = job.poll()

        end = kafka.edges(job.topics[0], isolation_level=isolation)[1]
        assert end == poll.latest[f"{job.topics[0]}/0"]
        assert poll.waiting_since == {}


def test_aborted_transaction_is_no_lag_and_an_open_one_holds_records_back(held, kafka):
    """For a query that may not read them (``read_committed``)."""
    job = held(**{"kafka.isolation.level": "read_committed"})
    place = f"{job.topics[0]}/0"
    job.hang()
    kafka.transaction(job.topics[0], ["x"] * 5, commit=False)
    poll = job.poll()
    assert (poll.latest[place] - poll.committed[place], len(poll.waiting_since)) == (7, 1)
    job.read_on()
    kafka.transaction(job.topics[0], ["x"] * 5, commit=False)
    until(lambda: job.poll().lag_offsets == 0, "nothing is unread")
    assert job.poll().waiting_since == {}

    with kafka.open_transaction(job.topics[0], ["x"] * 7):
        until(lambda: job.poll().log_end[place] - job.poll().latest[place] == 7, "7 records wait")
        assert job.poll().lag_offsets == 0
    job.query.processAllAvailable()
    until(lambda: job.poll().log_end == job.poll().latest, "none waits after the commit")


def test_compacted_records_are_no_lag(held, kafka):
    compacted = {
        "cleanup_policy": "compact",
        "segment_ms": "100",
        "min_cleanable_dirty_ratio": "0.01",
        "max_compaction_lag_ms": "100",
    }
    topic = kafka.topic(**compacted)
    kafka.produce(topic, ["a"], key="k")
    job = held(topic, first=())
    job.trap.hold.set()
    kafka.produce(topic, ["b"] * 20, key="k")
    assert job.trap.held.wait(PATIENCE_SECONDS)
    ended = _compacted(kafka, topic, 20)

    poll = job.poll()
    assert (poll.committed, poll.latest) == ({f"{topic}/0": 1}, {f"{topic}/0": ended})
    assert 1 <= poll.lag_offsets <= ended - 20
    assert poll.retention_seconds == {}


def _compacted(kafka, topic, offset):
    """Write until everything before an offset is compacted away; returns the end offset."""
    consumer, ended = kafka.reader(), 21

    def gone():
        nonlocal ended
        kafka.produce(topic, ["c"], key="k")
        ended += 1
        consumer.assign([TopicPartition(topic, 0, 1)])
        message = consumer.poll(1)
        return message is not None and message.offset() >= offset

    try:
        until(gone, "compaction")
    finally:
        consumer.close()
    return ended


def test_new_partition_counts_from_the_first_commit_on(held, kafka):
    job = held()
    job.hang()
    kafka.add_partitions(job.topics[0], 2)
    until(lambda: _succeeds(kafka.produce, job.topics[0], ["new"], partition=1), "it exists")
    assert job.poll().lag_by_partition == {f"{job.topics[0]}/0": 1}
    job.read_on()

    until(
        lambda: job.poll().lag_by_partition == {f"{job.topics[0]}/{n}": 0 for n in (0, 1)},
        "both are read",
    )


def _succeeds(action, *arguments, **options):
    """Whether the broker already allows it."""
    try:
        action(*arguments, **options)
    except KafkaException:
        return False
    return True


def test_deleted_topic_is_omitted_and_has_no_lag_when_it_is_recreated(held, kafka):
    gone, stays = kafka.topic(), kafka.topic()
    job = held(gone, stays, first=["a"] * 5, failOnDataLoss="false")
    job.hang(stays)
    kafka.delete(gone)

    def polled(*, listed):
        poll = job.poll()
        return poll if (f"{gone}/0" in poll.latest) == listed else None

    poll = until(lambda: polled(listed=False), "the topic is deleted")
    assert poll.lag_by_partition == {f"{stays}/0": 1}
    assert poll.missing_reason == ""
    assert gone not in kafka.admin.list_topics(timeout=PATIENCE_SECONDS).topics

    until(lambda: _succeeds(kafka.create, gone), "the topic exists again")
    kafka.produce(gone, ["new"])
    poll = until(lambda: polled(listed=True), "the topic is polled again")
    assert poll.lag_by_partition == {f"{stays}/0": 1, f"{gone}/0": 0}


def test_retention_is_reported_per_topic(held, kafka):
    short, forever = kafka.topic(retention_ms="60000"), kafka.topic(retention_ms="-1")
    sized = kafka.topic(retention_ms="-1", retention_bytes="1000000")
    poll = held(short, forever, sized).poll()

    assert poll.retention_seconds == {short: 60.0}
    assert poll.bounded_by_size == {sized}


def test_queries_on_one_cluster_with_equal_security_share_an_admin_client(spark, held, kafka):
    """It joins no consumer group, and is closed with the last of them."""
    finds = SparkSources(spark)
    plain = held(finds=finds)
    consumers_own = {"kafka.isolation.level": "read_committed", "kafka.max.poll.records": "7"}
    careful = held(finds=finds, **consumers_own)
    for job in (plain, careful):
        job.hang()
        assert job.poll().lag_offsets == 1
    assert len(admins(spark)) == 1
    groups = kafka.admin.list_consumer_groups().result(PATIENCE_SECONDS).valid
    assert not [group.group_id for group in groups if "querypulse" in group.group_id]
    secure = held(finds=finds, **{"kafka.sasl.jaas.config": "x.Module required password=hunter2;"})
    assert secure.poll().lag_offsets == 0
    assert len(admins(spark)) == 2
    secure.sources[0].close()

    plain.sources[0].close()
    assert careful.poll().lag_offsets == 1
    until(lambda: len(admins(spark)) == 1, "the others share one")
    careful.sources[0].close()
    until(lambda: not admins(spark), "no thread is left")


def admins(spark):
    """The threads of our admin clients, one per client."""
    return [name for name in threads(spark) if "admin-client-thread | querypulse" in name]


def threads(spark):
    every = spark._jvm.java.lang.Thread.getAllStackTraces().keySet()
    return [thread.getName() for thread in every]


def test_query_with_deprecated_offset_fetching_is_polled(spark, held):
    name = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(name, "true")
    try:
        job = held()
    finally:
        spark.conf.unset(name)
    job.hang()

    assert job.poll().lag_offsets == 1


def test_continuous_query_is_polled(spark, kafka):
    topic = kafka.topic()
    kafka.produce(topic, ["a"] * 3)
    writer = kafka.stream(spark, topic).writeStream.format("noop").queryName("continuous")
    query = writer.trigger(continuous="300 milliseconds").start()
    state = query_state(query)
    sources = until(lambda: SparkSources(spark).open(state), "the query has planned")
    try:
        until(lambda: sources[0].poll().committed == {f"{topic}/0": 3}, "an epoch")
        assert sources[0].poll().lag_offsets == 0
    finally:
        sources[0].close()
        query.stop()


# -- through the sidecar ------------------------------------------------------------------------


def test_lag_after_a_failure_grows_like_the_brokers_own_figure(spark, kafka, watch):
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, ["a"] * 10)
    sidecar = watch(source_interval_seconds=0.5, lag_by_partition=True)
    trap = Trap()
    query = start(kafka.stream(spark, topic), "dead", trap)
    query.processAllAvailable()
    asked = "spark_streaming_source_last_success_timestamp_seconds", "0"
    until(lambda: asked in metrics(sidecar, "dead"), "its broker is polled")
    until(lambda: shown(sidecar, "dead").lag_offsets == 0, "nothing is unread")
    trap.die.set()
    kafka.produce(topic, ["b"] * 3, partition=1)
    until(lambda: shown(sidecar, "dead").state == "failed", "the query failed")
    for number in (1, 2):
        kafka.produce(topic, ["c"] * 5, partition=0)
        waiting = 3 + 5 * number
        until(lambda: shown(sidecar, "dead").lag_offsets == waiting, "the lag grows")  # noqa: B023

    committed = offsets_of(query.lastProgress["sources"][0]["endOffset"])[topic]
    own = ends(kafka, {f"{topic}/{number}": offset for number, offset in committed.items()})
    figures = metrics(sidecar, "dead")
    assert figures["spark_streaming_source_lag_offsets", "0"] == 13
    assert sum(end for _, end in own.values()) - sum(committed.values()) == 13
    # What Spark reported is no figure of a dead query.
    assert ("spark_streaming_source_lag_reported_offsets", "0") not in figures
    assert figures["spark_streaming_topic_lag_offsets", "0", topic] == 13
    by_partition = {number: own[f"{topic}/{number}"][1] - committed[number] for number in committed}
    assert by_partition == {
        number: figures["spark_streaming_partition_lag_offsets", number, "0", topic]
        for number in committed
    }
    age = figures["spark_streaming_source_lag_seconds", "0"]
    assert age == figures["spark_streaming_topic_lag_seconds", "0", topic]
    assert age > 0
    until(
        lambda: metrics(sidecar, "dead")["spark_streaming_source_lag_seconds", "0"] > age, "it ages"
    )
    assert sidecar.snapshot().monitor.sources_unread == {}


def metrics(sidecar, query):
    """Figures of one query, by name and label values."""
    text = requests.get(f"{sidecar.url}/metrics", timeout=PATIENCE_SECONDS).text
    return {
        (
            sample.name,
            *(value for key, value in sorted(sample.labels.items()) if key not in OURS),
        ): (sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("query") == query
    }


def test_stopped_query_is_no_longer_polled_nor_any_after_the_sidecar_is_closed(spark, kafka, watch):
    topic = kafka.topic()
    kafka.produce(topic, ["a"])
    sidecar = watch(source_interval_seconds=0.5)
    query = start(kafka.stream(spark, topic), "stopped", Trap())
    until(lambda: admins(spark), "the broker is polled")
    sidecar.expect_stop("stopped")
    query.stop()
    until(lambda: not admins(spark), "the client is closed")

    start(kafka.stream(spark, topic), "closed", Trap())
    until(lambda: admins(spark), "the broker is polled again")
    sidecar.close()
    assert not [name for name in threads(spark) if "querypulse" in name]
