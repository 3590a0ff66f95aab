"""On real Spark: a slow batch is a warning; a batch that never ends becomes critical."""

from __future__ import annotations

import re
import threading
import time

import pytest
from support.queries import Trap, commits, rate, shown, start, until, warm
from support.repository import ROOT

pytestmark = pytest.mark.spark

FLOOR = 3.0
THROTTLED = ROOT / "tests" / "support" / "ThrottledFileSystem.java"
SLEEP = "java_method('java.lang.Thread', 'sleep', {}L)"


def sleeps(seconds):
    """A batch with one task that takes ``seconds``."""
    return lambda batch: run_tasks(batch, 1, seconds)


def run_tasks(batch, tasks, seconds):
    """Run ``tasks`` tasks at once, each for ``seconds``."""
    rows = batch.sparkSession.range(0, tasks, 1, tasks)
    rows.selectExpr(SLEEP.format(int(seconds * 1000))).collect()


def severities(sidecar, name):
    """The firing alerts of a query as (severity, kind of the reason)."""
    return {
        (alert.labels["severity"], alert.annotations["reason"].partition(":")[0])
        for alert in sidecar.alerts()
        if alert.labels["query"] == name
    }


def over_time(sidecar, name, ended):
    """All alerts that fire for a query until ``ended``."""
    seen = set()
    while not ended():
        seen |= severities(sidecar, name)
        time.sleep(0.05)
    return seen


@pytest.fixture
def throttled(spark):
    """Switches whether the store ``throttled:`` delays tasks that create a file."""
    jvm, settings = spark.sparkContext._jvm, spark.sparkContext._jsc.hadoopConfiguration()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(THROTTLED.read_text())
    made = jvm.org.apache.hadoop.conf.Configuration(settings)
    made.setClassLoader(compiler.getClassLoader())
    made.set("fs.throttled.impl", THROTTLED.stem)
    # Hadoop caches the system, so that tasks find it without knowing the class.
    system = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("throttled:///"), made)

    def throttle(on):
        jvm.System.setProperty("throttled", "") if on else jvm.System.clearProperty("throttled")

    yield throttle
    throttle(False)
    system.close()


def watched(watch, query, *others, **settings):
    """Watch queries after their slow first batches, which would lengthen the window."""
    for one in (query, *others):
        warm(one, 60)
    sidecar = watch(stall_floor_seconds=FLOOR, start_grace_seconds=FLOOR, **settings)
    for one in (query, *others):
        commits(sidecar, one.name, batches=query.lastProgress["batchId"] + 4)
    return sidecar


def test_long_task_that_began_before_attach_is_a_warning(spark, watch):
    planned, done = threading.Event(), threading.Event()

    def slow_once(batch):
        if not done.is_set():
            run_tasks(batch, 1, 0)  # Spark compiles for seconds, and runs no task meanwhile.
            planned.set()
            run_tasks(batch, 1, 3.5 * FLOOR)
            done.set()

    trap = Trap()
    trap.work = slow_once
    start(rate(spark), "attached late", trap)
    assert planned.wait(60)
    until(spark.sparkContext.statusTracker().getActiveJobsIds, "the long task runs")
    sidecar = watch(
        stall_floor_seconds=FLOOR, start_grace_seconds=FLOOR / 3, stall_critical_factor=10
    )
    seen = over_time(sidecar, "attached late", done.is_set)

    assert seen == {("warning", "task_running")}


def test_long_task_is_a_warning_and_an_endless_task_is_critical(spark, watch):
    skewed, done = Trap(), threading.Event()
    query = start(rate(spark), "skewed", skewed)
    sidecar = watched(watch, query)

    def slow_once(batch):
        run_tasks(batch, 1, 2.2 * FLOOR)
        done.set()

    skewed.work = slow_once
    seen = over_time(sidecar, "skewed", done.is_set)
    assert ("warning", "task_running") in seen
    assert {severity for severity, _ in seen} == {"warning"}

    skewed.work = sleeps(8 * FLOOR)
    critical = ("critical", "task_running")
    until(lambda: critical in severities(sidecar, "skewed"), "the alert becomes critical", 40)
    # A poll shows the batch some time after it began.
    assert shown(sidecar, "skewed").batch_in_flight_seconds > 3 * FLOOR - 1


def test_throttled_storage_is_a_warning(spark, watch, throttled, tmp_path):
    written, place = threading.Event(), f"throttled://{tmp_path}/table"
    slow = Trap()
    query = start(rate(spark), "throttled", slow)
    sidecar = watched(watch, query)

    def write(batch):
        throttled(True)
        batch.coalesce(1).write.mode("append").parquet(place)
        written.set()

    slow.work = write
    until(lambda: severities(sidecar, "throttled"), "the warning fires", 40)
    seen = severities(sidecar, "throttled")
    throttled(False)
    seen |= over_time(sidecar, "throttled", written.is_set)
    slow.work = None

    assert ("warning", "task_running") in seen
    assert {severity for severity, _ in seen} == {"warning"}


def test_batch_waiting_for_slots_is_a_warning(spark, watch):
    slots = int(re.sub(r"\D", "", spark.sparkContext.master))
    greedy, waits = Trap(), Trap()
    holds, done = threading.Event(), threading.Event()
    queries = [start(rate(spark), "greedy", greedy), start(rate(spark), "waits", waits)]
    sidecar = watched(watch, *queries)

    def hold_all_slots(batch):
        holds.set()
        run_tasks(batch, slots, 2.6 * FLOOR)
        done.set()

    def after_the_other(batch):
        assert holds.wait(20)
        time.sleep(1)
        batch.count()

    waits.work = after_the_other
    greedy.work = hold_all_slots
    try:
        seen = over_time(sidecar, "waits", done.is_set)
    finally:
        greedy.work = waits.work = None

    assert ("warning", "waiting_for_slots") in seen
    assert {severity for severity, _ in seen} == {"warning"}


def test_endlessly_retrying_batch_becomes_critical(spark, watch):
    retried, free = Trap(), threading.Event()
    query = start(rate(spark), "retried", retried)
    sidecar = watched(watch, query, slow_critical_factor=3.0)

    def retry_for_ever(batch):
        while not free.is_set():
            batch.count()

    retried.work = retry_for_ever
    try:
        until(lambda: severities(sidecar, "retried"), "the warning fires", 20)
        assert {severity for severity, _ in severities(sidecar, "retried")} == {"warning"}
        critical = ("critical", "retrying")
        until(lambda: critical in severities(sidecar, "retried"), "the alert becomes critical", 20)
        assert shown(sidecar, "retried").batch_in_flight_seconds > 3 * FLOOR
    finally:
        free.set()
