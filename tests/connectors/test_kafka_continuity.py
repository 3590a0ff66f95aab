"""On real Kafka: where a run begins is compared with where the run before it ended."""

from __future__ import annotations

import re
import shutil

import pytest
from support.patience import PATIENCE_SECONDS
from support.queries import commits, offsets_of, start, until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.thorough]

RISK = "StreamingDataLossRisk"
SETTINGS = {"source_interval_seconds": 0.5}


def has_read(query, topic, offset):
    """Wait until a query has read a topic's only partition up to an offset."""

    def ended():
        progress = query.lastProgress
        return progress and offsets_of(progress["sources"][0]["endOffset"])[topic]["0"] == offset

    until(ended, f"read up to {offset}")


def polled(sidecar, name, topic, offset):
    """Wait until the broker was asked while the query was at an offset of the topic."""

    def asked():
        query = sidecar._require_runtime().evaluated.snapshot.labels().get(name)
        return query is not None and any(
            poll.committed.get(f"{topic}/0") == offset and f"{topic}/0" in poll.latest
            for poll in query.checkpoint.polls.values()
        )

    until(asked, f"polled at {offset}")


def reason(sidecar):
    """The reason of the alert that fires now."""
    return "".join(alert.annotations["reason"] for alert in sidecar.alerts() if alert.name == RISK)


def recreate(kafka, topic):
    kafka.delete(topic)
    until(
        lambda: topic not in kafka.admin.list_topics(timeout=PATIENCE_SECONDS).topics,
        "the topic is deleted",
    )
    kafka.create(topic)


@pytest.mark.nightly
def test_lost_checkpoint_with_latest_is_reported_until_the_records_are_read(
    spark, kafka, watch, pages, tmp_path
):
    topic = kafka.topic()
    kafka.produce(topic, ["read"] * 100)
    sidecar = watch(**SETTINGS)
    query = start(kafka.stream(spark, topic), "orders", checkpoint=tmp_path / "checkpoint")
    has_read(query, topic, 100)
    commits(sidecar, "orders")
    polled(sidecar, "orders", topic, 100)
    sidecar.expect_stop("orders")
    query.stop()
    kafka.produce(topic, ["skipped"] * 500)
    shutil.rmtree(tmp_path / "checkpoint")
    latest = {"startingOffsets": "latest"}
    query = start(
        kafka.stream(spark, topic, **latest), "orders", checkpoint=tmp_path / "checkpoint"
    )

    page = pages.wait_for(RISK, "orders")

    assert page.labels["severity"] == "critical"
    assert f"{topic}/0: 500 records from offset 100 to 599" in page.annotations["reason"]
    assert "still retained" in page.annotations["reason"]
    query.stop()
    again = {"startingOffsets": f'{{"{topic}": {{"0": 100}}}}'}
    start(kafka.stream(spark, topic, **again), "orders", checkpoint=tmp_path / "another")
    pages.wait_for(RISK, "orders", status="resolved")


def test_records_deleted_during_a_planned_stop_are_reported(spark, kafka, watch, pages, tmp_path):
    topic = kafka.topic()
    kafka.produce(topic, ["read"] * 100)
    sidecar = watch(**SETTINGS)
    options = {"failOnDataLoss": "false"}
    checkpoint = tmp_path / "checkpoint"
    query = start(kafka.stream(spark, topic, **options), "orders", checkpoint=checkpoint)
    has_read(query, topic, 100)
    sidecar.expect_stop("orders")
    query.stop()
    kafka.produce(topic, ["deleted"] * 400)
    kafka.forget(topic, 500)
    start(kafka.stream(spark, topic, **options), "orders", checkpoint=checkpoint)

    page = pages.wait_for(RISK, "orders")

    assert page.labels["severity"] == "critical"
    # A poll before the first batch shows it, too.
    assert re.search(
        rf"{topic}/0: 400 (offsets|records)\b.* were deleted", page.annotations["reason"]
    )
    until(lambda: "records from offset 100 to 499 were deleted" in reason(sidecar), "it is kept")


def test_topic_that_is_recreated_longer_than_the_committed_offset_is_reported(
    spark, kafka, watch, pages
):
    topic = kafka.topic()
    kafka.produce(topic, ["read"] * 100)
    sidecar = watch(**SETTINGS)
    # It has no batch while the topic is away.
    query = start(kafka.stream(spark, topic), "orders", trigger="20 seconds")
    has_read(query, topic, 100)
    polled(sidecar, "orders", topic, 100)
    recreate(kafka, topic)
    kafka.produce(topic, ["new"] * 150)

    page = pages.wait_for(RISK, "orders")

    assert page.labels["severity"] == "critical"
    assert "deleted and created again" in page.annotations["reason"]
    assert "100 records" in page.annotations["reason"]


def test_next_process_compares_a_new_checkpoint_with_what_the_spool_holds(
    spark, kafka, watch, pages, tmp_path
):
    topic = kafka.topic()
    kafka.produce(topic, ["read"] * 100)
    sidecar = watch(**SETTINGS, spool_dir=str(tmp_path / "spool"))
    query = start(kafka.stream(spark, topic), "orders", checkpoint=tmp_path / "first")
    has_read(query, topic, 100)
    polled(sidecar, "orders", topic, 100)
    sidecar.expect_stop("orders")
    query.stop()
    sidecar.close(PATIENCE_SECONDS)
    kafka.produce(topic, ["skipped"] * 500)
    watch(**SETTINGS, spool_dir=str(tmp_path / "spool"))
    stream = kafka.stream(spark, topic, startingOffsets="latest")
    start(stream, "orders", checkpoint=tmp_path / "second")

    page = pages.wait_for(RISK, "orders")

    assert f"{topic}/0: 500 records from offset 100 to 599" in page.annotations["reason"]


class Healthy:
    """Queries that pass over no record, whatever happens to their topics and checkpoints."""

    def __init__(self, spark, kafka, sidecar, folder) -> None:
        self.spark, self.kafka, self.sidecar, self.folder = spark, kafka, sidecar, folder
        self.started = {}

    def begin(self, name, topic, *, checkpoint=None, trigger="200 milliseconds", **options):
        stream = self.kafka.stream(self.spark, topic, failOnDataLoss="false", **options)
        folder = self.folder / (checkpoint or name)
        self.started[name] = start(stream, name, checkpoint=folder, trigger=trigger)

    def stop(self, name):
        self.sidecar.expect_stop(name)
        self.started[name].stop()

    def read(self, name, topic, offset):
        has_read(self.started[name], topic, offset)
        polled(self.sidecar, name, topic, offset)

    def again(self, topic):
        """A new checkpoint on purpose: once from the beginning, once from where the old one ended."""
        for name, begins in (("from 0", "earliest"), ("exact", f'{{"{topic}": {{"0": 100}}}}')):
            self.begin(name, topic)
            self.read(name, topic, 100)
            self.stop(name)
            self.begin(name, topic, checkpoint=f"{name}, again", startingOffsets=begins)

    def transactions(self, topic):
        """Markers and aborted records have offsets, but no rows."""
        for name in ("committed", "uncommitted"):
            self.begin(name, topic, **{"kafka.isolation.level": f"read_{name}"})
        for commit in (True, False) * 3:
            self.kafka.transaction(topic, ["in a transaction"] * 5, commit=commit)
        end = self.kafka.edges(topic)[1]
        for name in ("committed", "uncommitted"):
            self.read(name, topic, end)
            self.stop(name)
            self.begin(name, topic)

    def expired(self, topic):
        """All that was read is deleted, then the query is restarted."""
        self.begin("expired", topic)
        self.read("expired", topic, 100)
        self.stop("expired")
        self.kafka.forget(topic, -1)
        self.begin("expired", topic)
        self.read("expired", topic, 100)

    def grown(self, topic):
        """Partitions are added, and a topic that the pattern did not have before."""
        reader = self.spark.readStream.format("kafka").option("subscribePattern", f"{topic}.*")
        reader = reader.option("kafka.bootstrap.servers", self.kafka.bootstrap_servers)
        reader = reader.option("startingOffsets", "earliest")
        reader = reader.option("kafka.metadata.max.age.ms", "200")
        self.started["grown"] = start(reader.load(), "grown", checkpoint=self.folder / "grown")
        self.read("grown", topic, 100)
        self.kafka.add_partitions(topic, 2)
        self.kafka.create(f"{topic}-new")
        self.kafka.produce(f"{topic}-new", ["new"] * 10)
        polled(self.sidecar, "grown", f"{topic}-new", 10)


def test_healthy_restarts_and_topics_raise_no_alert(spark, kafka, watch, pages, tmp_path):
    sidecar = watch(**SETTINGS)
    healthy = Healthy(spark, kafka, sidecar, tmp_path)
    for play in (healthy.again, healthy.transactions, healthy.expired, healthy.grown):
        topic = kafka.topic()
        if play != healthy.transactions:
            kafka.produce(topic, ["record"] * 100)
        play(topic)
    lost = kafka.topic()
    kafka.produce(lost, ["read"] * 100)
    healthy.begin("lost", lost)
    healthy.read("lost", lost, 100)
    healthy.stop("lost")
    kafka.produce(lost, ["skipped"])
    healthy.begin("lost", lost, checkpoint="another", startingOffsets="latest")

    pages.wait_for(RISK, "lost")

    assert {page.what for page in pages.pages} == {(RISK, "lost")}
