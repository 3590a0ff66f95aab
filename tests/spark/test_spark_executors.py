"""On real Spark: executors that are lost again and again hold a batch, and the alert says so."""

from __future__ import annotations

import re

import pytest
from support.driver import HEADER, START_SECONDS, Driver

from querypulse.listener.spark.event_paths import EventQueue
from querypulse.listener.spark.health_listener import HealthListener

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

STALLED = "StreamingQueryStalled"
ENDLESS = (
    "spark.task.maxFailures=1000",
    "spark.stage.maxConsecutiveAttempts=1000",
    "spark.deploy.maxExecutorRetries=-1",
)
"""As on spot nodes: an executor that its platform takes away is no failure of a task."""
SPOT = """
from pathlib import Path

def executors():
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_executor = b"CoarseGrainedExecutorBackend" in (folder / "cmdline").read_bytes()
            # The session of a process, which its children share.
            of_us = os.getsid(int(folder.name)) == os.getsid(0)
        except OSError:
            continue
        if is_executor and of_us:
            found.append(int(folder.name))
    return found

def tasks_run():
    infos = spark._jsc.sc().statusTracker().getExecutorInfos()
    return any(info.numRunningTasks() for info in infos)

def lose():
    while not over.is_set():
        # They finish some tasks of 1.5 s, and not all of the stage, on a machine of any speed.
        until(lambda: over.is_set() or tasks_run())
        if not over.wait(4):
            for process in executors():
                os.kill(process, signal.SIGKILL)

over, lossy = threading.Event(), threading.Event()
def work(batch, batch_id):
    if not over.is_set() and lossy.is_set():
        slept = "java_method('java.lang.Thread', 'sleep', 1500L) is null as slept"
        batch.sparkSession.range(0, 40, 1, 40).selectExpr("id", slept).repartition(2).count()

sidecar = attach(spark, webhook_url=os.environ["PAGES"], stall_floor_seconds=20)
start("spotted", work)
until_commits(sidecar, "spotted")
lossy.set()
threading.Thread(target=lose, daemon=True).start()
until(lambda: any("executors_lost" in query.reason for query in sidecar.snapshot().queries))
over.set()
time.sleep(3600)
"""


# Nightly: while a machine is busy, executors take so long to start that this takes minutes.
@pytest.mark.nightly
@pytest.mark.fault(
    "Spark",
    "executors are lost every few seconds, and their tasks begin again and again",
    "A warning with how many were lost and why, critical after ten minutes without progress",
)
def test_batch_whose_executors_are_lost_again_and_again_is_reported_with_their_number(
    pages, tmp_path
):
    header = HEADER.replace("local[2]", "local-cluster[2,1,1024]")
    conf = " ".join(f"--conf {setting}" for setting in ENDLESS)
    environment = {"PYSPARK_SUBMIT_ARGS": f"{conf} pyspark-shell"}
    with Driver(SPOT, tmp_path, header=header, PAGES=pages.url, **environment):
        page = pages.wait_for(STALLED, "spotted", timeout=2 * START_SECONDS)

        assert page.labels["severity"] == "warning"
        said = (
            r"executors_lost: .* its tasks begin again and again, .* ([0-9]+) executors were lost"
        )
        count = re.match(said, page.annotations["reason"])
        assert count is not None, page.annotations["reason"]
        assert int(count[1]) >= 3
        assert "137" in page.annotations["reason"]
        # Executors that stay finish the batch.
        pages.wait_for(STALLED, "spotted", status="resolved", timeout=2 * START_SECONDS)


def test_executors_that_are_removed_in_order_are_not_lost(spark):
    bus, jvm = spark._jsc.sc().listenerBus(), spark._jvm
    queue = EventQueue(spark, HealthListener(capacity=1, start=object, start_on=list))
    try:
        assert queue.java.listenOnBus(bus)
        removed = jvm.org.apache.spark.scheduler.SparkListenerExecutorRemoved
        before = queue.job_counts().lost
        # As Spark writes them: ExecutorKilled, and ExecutorAllocationManager with decommissioning.
        for reason in ("Executor killed by driver.", "Executor decommission: spark scale down"):
            bus.post(removed(0, "1", reason))
        bus.waitUntilEmpty()
        in_order = queue.job_counts().lost
        # Python redacts it before it cuts it: it needs more than what it keeps.
        killed = f"\nCommand exited with code 137: {'x' * 250} https://u:hunter2hunter2@store\nlogs"
        for reason in ("Executor decommission: spot", killed):
            bus.post(removed(0, "1", reason))
        bus.waitUntilEmpty()
        lost = queue.job_counts().lost
    finally:
        queue.release()

    assert not before.seconds_ago
    assert not in_order.seconds_ago
    assert len(lost.seconds_ago) == 2
    assert lost.reason.startswith("Command exited with code 137: xx")
    assert "hunter2" not in lost.reason
