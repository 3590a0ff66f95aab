"""On real Kafka: ``continuous``, ``realTime`` and async progress tracking, healthy, hung and
failed. Only the checkpoint says what such a query has committed; its events do not, or do too
early.
"""

from __future__ import annotations

import json
import os
import signal
from inspect import signature
from typing import Any

import pytest
from pyspark.sql.streaming import DataStreamWriter
from support.connectors import Kafka
from support.queries import shown, until
from support.spark_harness import Diary

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.thorough,
    pytest.mark.timeout(600),
]

POISON = "poison"
VALUE = f"CASE WHEN CAST(value AS STRING) = '{POISON}' THEN raise_error('boom') ELSE value END"
HAS_REAL_TIME = "realTime" in signature(DataStreamWriter.trigger).parameters
"""From Spark 4.2 on."""
FLOOR = 10
SETTINGS = {"stall_floor_seconds": FLOOR, "start_grace_seconds": 40}
WATCH_SECONDS = 2.5 * FLOOR
HUNG = {
    "continuous": "commit_log_behind: no epoch committed for ",
    "asynchronous": "task_running: batch ",
    "real_time": "task_running: batch ",
}
"""The reason of a query whose sink hangs, by mode."""
NEEDS_REAL_TIME = (
    pytest.mark.nightly,
    pytest.mark.skipif(
        not HAS_REAL_TIME, reason="needs Spark 4.2, whose PySpark has the trigger realTime"
    ),
)
each_mode = pytest.mark.parametrize(
    "mode",
    ["continuous", "asynchronous", pytest.param("real_time", marks=NEEDS_REAL_TIME)],
)


class FarBroker(Kafka):
    """A broker that can be made to hang, with all its connections open."""

    def freeze(self) -> None:
        os.kill(self.broker.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.broker.pid, signal.SIGCONT)


class Modes:
    """Starts a query that writes each value of ``topic`` to a topic of the broker ``to``."""

    def __init__(self, harness: Any, to: Kafka) -> None:
        self._harness = harness
        self._to = to
        self._session = harness.spark.newSession()
        # The default minimum is 5 s.
        self._session.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", "1000")

    def continuous(self, name: str, topic: str) -> Any:
        """Each of its tasks occupies a core as long as the query runs."""
        return self._start(name, topic, trigger={"continuous": "1 second"})

    def real_time(self, name: str, topic: str) -> Any:
        """Its tasks occupy cores too; a batch lasts as long as its trigger interval."""
        return self._start(name, topic, trigger={"realTime": "2 seconds"}, mode="update")

    def asynchronous(self, name: str, topic: str) -> Any:
        """Its log is written at most every second."""
        return self._start(
            name,
            topic,
            trigger={"processingTime": "1 second"},
            asyncProgressTrackingEnabled=True,
            asyncProgressTrackingCheckpointIntervalMs=1000,
        )

    def _start(self, name: str, topic: str, **options: Any) -> Any:
        stream = self._harness.kafka.stream(self._session, topic).selectExpr(f"{VALUE} AS value")
        servers = {"kafka.bootstrap.servers": self._to.bootstrap_servers}
        return self._harness.start(
            stream, name, "kafka", topic=self._to.topic(), **servers, **options
        )


@pytest.fixture
def far(tmp_path):
    folder = tmp_path / "far"
    folder.mkdir()
    broker = FarBroker(folder)
    yield broker
    broker.close()


@pytest.mark.nightly
@each_mode
def test_each_trigger_mode_is_quiet_while_healthy_and_reported_when_its_work_hangs(
    far, harness, watch, pages, mode
):
    """``far`` comes first, so that it lives until the queries that write to it are stopped."""
    fed, silent = harness.kafka.topic(), harness.kafka.topic()
    harness.feed(fed, every=0.5)
    healthy, failing = Modes(harness, harness.kafka), Modes(harness, far)
    names = {
        getattr(healthy, mode)("fed", fed).name,
        getattr(healthy, mode)("silent", silent).name,
        getattr(failing, mode)("hung", fed).name,
    }
    until(lambda: all(harness.committed(name) >= 0 for name in names), "all commit")
    sidecar = watch(**SETTINGS)
    diary = Diary(harness, sidecar)
    until(lambda: diary.seconds > WATCH_SECONDS, "the time is over")
    harness.put(silent)
    for name in ("fed", "hung"):
        until(lambda: len(diary[name].commits) > 3, f"{name} commits on")  # noqa: B023
        is_shown_as_logged(harness, sidecar, name)
    assert pages.pages == []

    far.freeze()
    try:
        reason = pages.wait_for("StreamingQueryStalled", "hung").annotations["reason"]
    finally:
        far.thaw()
    pages.wait_for("StreamingQueryStalled", "hung", status="resolved")
    assert reason.startswith(HUNG[mode])
    # On a busy machine, a batch that hangs may be slow first.
    slow, stalled = ("StreamingBatchSlow", "hung"), ("StreamingQueryStalled", "hung")
    assert {page.what for page in pages.pages} - {slow} == {stalled}


def test_partition_that_a_continuous_query_gains_raises_no_alert(harness, watch, pages):
    grown = harness.kafka.topic()
    harness.feed(grown, 4, every=0.5)
    Modes(harness, harness.kafka).continuous("grown", grown)
    until(lambda: harness.committed("grown") >= 0, "it commits")
    sidecar = watch()
    harness.kafka.add_partitions(grown, 2)
    until(lambda: ends_of(harness, "grown") == {"0", "1"}, "it reads the new partition")
    is_shown_as_logged(harness, sidecar, "grown")
    assert sidecar.flush()

    assert pages.reported == []


@each_mode
def test_failure_in_each_trigger_mode_is_reported_with_its_cause(harness, watch, pages, mode):
    topic = harness.kafka.topic()
    harness.put(topic)
    getattr(Modes(harness, harness.kafka), mode)(mode, topic)
    until(lambda: harness.committed(mode) >= 0, "it commits")
    sidecar = watch()
    until(lambda: shown(sidecar, mode), "it is known")

    harness.kafka.produce(topic, [POISON])
    page = pages.wait_for("StreamingQueryFailed", mode)
    assert "boom" in page.annotations["reason"]
    assert page.annotations["error_class"] == "USER_RAISED_EXCEPTION"
    assert {page.what for page in pages.pages} == {("StreamingQueryFailed", mode)}


def is_shown_as_logged(harness, sidecar, name):
    """The displayed commit catches up with the one on disk, and is never ahead of it."""
    logged = harness.committed(name)

    def caught_up():
        query = shown(sidecar, name)
        newest = query.last_commit_batch if query is not None else None
        return newest is not None and newest >= logged

    until(caught_up, f"{name} is seen to commit")
    batch = shown(sidecar, name).last_commit_batch
    until(lambda: harness.committed(name) >= batch, f"the log of {name} catches up")


def ends_of(harness, name):
    """The partitions in a query's newest committed offsets."""
    newest = harness.checkpoint(name) / "offsets" / str(harness.committed(name))
    offsets = newest.read_text().splitlines()[-1]
    return set(next(iter(json.loads(offsets).values())))
