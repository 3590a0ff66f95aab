"""On real Kafka: ``continuous``, ``realTime`` and async progress tracking, healthy, hung and
failed. Only the checkpoint says what such a query has committed; its events do not, or do too
early.
"""

from __future__ import annotations

import json

import pytest
from support.failing_workloads import Storage
from support.kafka_harness import KafkaHarness
from support.kafka_modes import HOUR, POISON, FarBroker, Modes
from support.queries import shown, until
from support.spark_harness import Diary

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]

FLOOR = 6
SETTINGS = {"stall_floor_seconds": FLOOR, "start_grace_seconds": 40}
WATCH_SECONDS = 2.5 * FLOOR
HUNG = {
    "continuous_hung": "commit_log_behind: no epoch committed for ",
    "real_time_hung": "task_running: batch ",
    "async_hung": "task_running: batch ",
    "async_log_hung": "commit_log_behind: ",
}
PATIENCE_SECONDS = 120


@pytest.fixture
def harness(spark, kafka, watch, tmp_path):
    """Depends on ``watch`` so that it is closed before its queries are stopped."""
    harness = KafkaHarness(spark, tmp_path, kafka)
    yield harness
    harness.close()


@pytest.fixture
def far(tmp_path):
    folder = tmp_path / "far"
    folder.mkdir()
    broker = FarBroker(folder)
    yield broker
    broker.close()


def test_each_trigger_mode_is_quiet_while_healthy_and_reported_when_work_or_log_hangs(
    far, harness, watch, pages
):
    """``far`` comes first, so that it lives until the queries that write to it are stopped."""
    fed, silent, grown = harness.kafka.topic(), harness.kafka.topic(), harness.kafka.topic()
    harness.feed(fed, every=0.5)
    harness.feed(grown, 4, every=0.5)
    healthy, failing = Modes(harness, harness.kafka), Modes(harness, far)
    log_hung = healthy.asynchronous("async_log_hung", fed)
    healthy.asynchronous("async_silent", silent, milliseconds=HOUR)
    for mode in ("continuous", "real_time"):
        getattr(healthy, mode)(f"{mode}_fed", fed)
        getattr(healthy, mode)(f"{mode}_silent", silent)
        getattr(failing, mode)(f"{mode}_hung", fed)
    healthy.continuous("continuous_grown", grown)
    healthy.asynchronous("async_fed", fed)
    failing.asynchronous("async_hung", fed)
    names = {query.name for query in harness.spark.streams.active}
    until(lambda: all(harness.committed(name) >= 0 for name in names), "all commit", 120)
    sidecar = watch(**SETTINGS)
    diary = Diary(harness, sidecar)

    harness.kafka.add_partitions(grown, 2)
    harness.put(silent)
    until(lambda: 1 in diary["async_silent"].commits, "a late batch")
    harness.put(silent)
    until(lambda: diary.seconds > WATCH_SECONDS, "the time is over", 60)
    until(lambda: names - {"async_silent"} <= diary.in_state("running"), "they run")
    until(lambda: diary["async_silent"].state == "idle", "it is idle")

    assert pages.pages == []
    # Its events report batch 2; its log never contains that batch.
    assert (max(diary["async_silent"].commits), harness.committed("async_silent")) == (2, 0)
    for name in names - {"async_silent"}:
        assert len(diary[name].commits) > 3, name
        is_shown_as_logged(harness, sidecar, name)

    storage = Storage(harness.spark, log_hung)
    harness.at_close(storage.free.set)
    storage.hang()
    far.freeze()
    reasons = {
        name: pages.wait_for("StreamingQueryStalled", name, timeout=PATIENCE_SECONDS).annotations[
            "reason"
        ]
        for name in HUNG
    }
    far.thaw()
    storage.free.set()
    for name in HUNG:
        pages.wait_for("StreamingQueryStalled", name, status="resolved", timeout=PATIENCE_SECONDS)

    assert {n: why for n, why in reasons.items() if not why.startswith(HUNG[n])} == {}
    # On a busy machine, a batch that hangs may be slow first.
    slow = {("StreamingBatchSlow", name) for name in HUNG}
    stalled = {("StreamingQueryStalled", name) for name in HUNG}
    assert {page.what for page in pages.pages} - slow == stalled
    assert {"0", "1"} == set(ends_of(harness, "continuous_grown"))


def test_failure_in_each_trigger_mode_is_reported_with_its_cause(harness, watch, pages):
    topic = harness.kafka.topic()
    harness.put(topic)
    modes = Modes(harness, harness.kafka)
    queries = [modes.continuous("continuous", topic), modes.real_time("real_time", topic)]
    queries.append(modes.asynchronous("async", topic))
    names = [query.name for query in queries]
    until(lambda: all(harness.committed(name) >= 0 for name in names), "all commit", 120)
    sidecar = watch(**SETTINGS)
    until(lambda: all(shown(sidecar, name) for name in names), "all are known")

    harness.kafka.produce(topic, [POISON])
    for name in names:
        page = pages.wait_for("StreamingQueryFailed", name, timeout=PATIENCE_SECONDS)
        assert "boom" in page.annotations["reason"]
        assert page.annotations["error_class"] == "USER_RAISED_EXCEPTION"

    assert {page.what for page in pages.pages} == {("StreamingQueryFailed", name) for name in names}


def is_shown_as_logged(harness, sidecar, name):
    """The displayed commit catches up with the one on disk, and is never ahead of it."""
    logged = harness.committed(name)
    until(lambda: shown(sidecar, name).last_commit_batch >= logged, f"{name} is seen to commit")
    batch = shown(sidecar, name).last_commit_batch
    until(lambda: harness.committed(name) >= batch, f"the log of {name} catches up", 5)


def ends_of(harness, name):
    """The partitions in a query's newest committed offsets."""
    newest = harness.checkpoint(name) / "offsets" / str(harness.committed(name))
    offsets = newest.read_text().splitlines()[-1]
    return next(iter(json.loads(offsets).values()))
