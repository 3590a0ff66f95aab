"""On real state stores: what an operator keeps is published as Spark says, and a leak is known as one."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import functions
from support.queries import until
from support.story import Story

from querypulse.listener.events import EventKind, decode

pytestmark = [pytest.mark.spark, pytest.mark.every_spark, pytest.mark.thorough]

STATE = "spark.sql.streaming.stateStore"
PROVIDERS = {
    "RocksDB": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "HDFS": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
CONF = {
    "spark.sql.shuffle.partitions": "2",
    f"{STATE}.coordinatorReportSnapshotUploadLag": "true",
    f"{STATE}.rocksdb.boundedMemoryUsage": "false",
}
BATCHES = 11
EIGHT_HOURS = 8 * 3600


@pytest.fixture
def with_conf(spark):
    """Set what a query reads at its start; afterwards all is as before."""
    before = {}

    def setting(values):
        for name, value in values.items():
            before.setdefault(name, spark.conf.get(name, None))
            spark.conf.set(name, value)

    yield setting
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def deduplicated(spark, checkpoint):
    """A query whose state has 20,000 keys more after each batch, for ever."""
    source = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 20_000)
        .option("numPartitions", 2)
        .load()
    )
    counted = functions.count(functions.lit(1)).alias("amount_of_rows")
    kept = source.dropDuplicates(["value"]).observe("orders", counted)
    writer = kept.writeStream.format("noop").queryName("leaks")
    return writer.option("checkpointLocation", str(checkpoint)).start()


def progresses(query):
    texts = [progress.json() for progress in query._jsq.recentProgress()]
    batches = {json.loads(text)["batchId"]: text for text in texts}
    return [text for text in batches.values() if json.loads(text)["numInputRows"]]


@pytest.mark.parametrize("store", PROVIDERS)
def test_state_is_published_as_spark_reports_it_and_a_leak_is_known(
    store, spark, watch, with_conf, tmp_path
):
    with_conf({**CONF, f"{STATE}.providerClass": PROVIDERS[store]})
    sidecar = watch(observed_metrics=["orders.amount*"])
    query = deduplicated(spark, tmp_path / "checkpoint")
    until(lambda: len(progresses(query)) >= BATCHES, "it commits some batches")
    query.stop()
    texts = progresses(query)[:BATCHES]

    _is_published(sidecar, store)
    _is_known_as_a_leak(texts)


def _is_published(sidecar, store):
    def shown():
        (status,) = [entry for entry in sidecar.snapshot().queries if entry.name == "leaks"]
        return status.state_operators

    (operator,) = until(shown, "its state is in the status")
    rows = operator.rows
    assert rows is not None
    assert operator.name == "dedupe"
    assert (rows % 20_000, operator.updated_rows, operator.removed_rows) == (0, 20_000, 0)
    assert operator.bytes is not None
    assert operator.bytes > 0
    if store == "HDFS":
        assert operator.memory_bytes == operator.bytes


def _is_known_as_a_leak(texts):
    """On a fake clock, the real batches come every eight hours."""
    story = Story()
    for number, text in enumerate(texts):
        event = decode(EventKind.PROGRESS, f'{{"progress": {text}}}', ("orders.*",))
        at = (number + 1) * EIGHT_HOURS
        story.state.apply_event(event, at)
        story.until(at + 1)
        assert [(seen.name, seen.field, seen.value) for seen in event.observed] == [
            ("orders", "amount_of_rows", 20_000.0)
        ]
        wire = json.loads(text)["stateOperators"][0]
        (operator,) = event.operators
        assert operator.metrics == wire["customMetrics"]
        assert (operator.rows, operator.rows_updated) == (
            wire["numRowsTotal"],
            wire["numRowsUpdated"],
        )
    (finding,) = story.evaluate(story.ends_at).findings
    assert finding.alertname == "StreamingStateGrowing"
    assert finding.reason.startswith("dedupe keeps 220 k rows")
    assert "there is no watermark" in finding.reason

    kept = story.evaluate(story.ends_at, state_limit_bytes=10**12).findings
    assert [entry.facts.limit_bytes for entry in kept] == [None]
    limit = int(event.operators[0].state_bytes)
    (full,) = story.evaluate(story.ends_at, state_limit_bytes=limit).findings
    assert (full.severity.value, full.facts.limit_bytes) == ("critical", limit)
