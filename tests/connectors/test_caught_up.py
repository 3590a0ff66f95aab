"""A query that catches up on a real source, beside the clock: what is said half-way comes true.

A trigger interval and a limit for each batch set its speed, so that any machine reads as fast.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.connectors import DeltaTable, IcebergTable
from support.queries import SPARK_PATIENCE_SECONDS, shown

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(1500)]

INTERVAL_SECONDS = 2
LONGEST_SECONDS = 900


@contextmanager
def fed(feed: Callable[[], object], every: float) -> Iterator[None]:
    """Feed the source at this interval while the block runs."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every):
            feed()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def answers(sidecar, name):
    """What ``/status`` said each second until the query had caught up, and when that was."""
    began, said = time.monotonic(), []
    while time.monotonic() - began < LONGEST_SECONDS:
        time.sleep(1)
        answer = shown(sidecar, name).caught_up if shown(sidecar, name) else None
        if answer is not None and answer.seconds == 0 and said:
            return said, time.monotonic()
        if answer is not None and answer.seconds:
            said.append((time.monotonic(), answer))
    pytest.fail(f"{name} has not caught up: {said[-1:]}")


def starts(stream, folder, name):
    writer = stream.writeStream.format("noop").queryName(name)
    writer = writer.option("checkpointLocation", str(folder / name))
    return writer.trigger(processingTime=f"{INTERVAL_SECONDS} seconds").start()


def read_once(stream, folder, name):
    """Read what is there, so that what is written later is a backlog of versions or snapshots."""
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(folder / name))
    writer.trigger(availableNow=True).start().awaitTermination(SPARK_PATIENCE_SECONDS)


def comes_true(stream, folder, watch, name):
    """Whether what is said half-way is right within a fifth of the time that is left."""
    sidecar, began = watch(source_interval_seconds=1), time.monotonic()
    query = starts(stream, folder, name)
    try:
        said, caught_up_at = answers(sidecar, name)
    finally:
        query.stop()
    half_way = (began + caught_up_at) / 2
    asked_at, answer = next((at, answer) for at, answer in said if at >= half_way)
    left = caught_up_at - asked_at
    print(f"{name}: {answer.text}; it took {left:.0f} s")
    assert not answer.never
    assert abs(answer.seconds - left) <= left / 5


@pytest.mark.kafka
def test_a_backlog_of_a_topic(spark, kafka, watch, tmp_path):
    topic = kafka.topic(4)
    kafka.produce(topic, ["x"] * 60_000)
    stream = kafka.stream(spark, topic, maxOffsetsPerTrigger="500")

    with fed(lambda: kafka.produce(topic, ["x"] * 50), every=1):
        comes_true(stream, tmp_path, watch, "topic")


@pytest.mark.delta
def test_a_backlog_of_a_delta_table(spark, watch, tmp_path):
    table = DeltaTable(spark, tmp_path / "table").write()
    stream = table.stream(maxFilesPerTrigger="1")
    read_once(stream, tmp_path, "facts")
    table.write(100)

    with fed(table.write, every=10):
        comes_true(stream, tmp_path, watch, "facts")


@pytest.mark.iceberg
def test_a_backlog_of_an_iceberg_table(spark, watch, tmp_path):
    spark.sql("CREATE NAMESPACE IF NOT EXISTS ice.db")
    warehouse = spark.conf.get("spark.sql.catalog.ice.warehouse")
    table = IcebergTable(spark, warehouse, "behind").write()
    stream = table.stream(**{"streaming-max-files-per-micro-batch": "1"})
    read_once(stream, tmp_path, "behind")
    table.write(100)

    with fed(table.write, every=10):
        comes_true(stream, tmp_path, watch, "behind")
