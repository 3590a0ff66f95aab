"""On real Spark: ordinary slowness is a warning, what never ends becomes critical."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest
from support.queries import Trap, commits, rate, shown, start, until, warm

pytestmark = pytest.mark.spark

FLOOR = 3.0
THROTTLED = Path(__file__).with_name("support") / "ThrottledFileSystem.java"
SLEEP = "java_method('java.lang.Thread', 'sleep', {}L)"


def sleeps(seconds):
    """A batch whose one task takes that long."""
    return lambda batch: run_tasks(batch, 1, seconds)


def run_tasks(batch, tasks, seconds):
    """Run so many tasks at once, each for so long."""
    rows = batch.sparkSession.range(0, tasks, 1, tasks)
    rows.selectExpr(SLEEP.format(int(seconds * 1000))).collect()


def severities(sidecar, name):
    """The alerts of a query that fire now: how severe each is, and the first word of its reason."""
    return {
        (alert.labels["severity"], alert.annotations["reason"].partition(":")[0])
        for alert in sidecar.alerts()
        if alert.labels["query"] == name
    }


def over_time(sidecar, name, ended):
    """All that fires for a query until something has ended."""
    seen = set()
    while not ended():
        seen |= severities(sidecar, name)
        time.sleep(0.05)
    return seen


@pytest.fixture
def throttled(spark):
    """Whether the store ``throttled:`` lets the tasks that create a file wait."""
    jvm, settings = spark.sparkContext._jvm, spark.sparkContext._jsc.hadoopConfiguration()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(THROTTLED.read_text())
    made = jvm.org.apache.hadoop.conf.Configuration(settings)
    made.setClassLoader(compiler.getClassLoader())
    made.set("fs.throttled.impl", THROTTLED.stem)
    # Hadoop keeps it: tasks, which know nothing of the class, find it there.
    system = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("throttled:///"), made)

    def throttle(on):
        jvm.System.setProperty("throttled", "") if on else jvm.System.clearProperty("throttled")

    yield throttle
    throttle(False)
    system.close()


def watched(watch, query, *others, **settings):
    """Watch queries whose slow first batches are over: they would make the window longer."""
    for one in (query, *others):
        warm(one, 60)
    sidecar = watch(stall_floor_seconds=FLOOR, start_grace_seconds=FLOOR, **settings)
    for one in (query, *others):
        commits(sidecar, one.name, batches=query.lastProgress["batchId"] + 4)
    return sidecar


def test_one_long_task_is_a_warning_and_a_task_that_never_ends_is_critical(spark, watch):
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
    until(lambda: critical in severities(sidecar, "skewed"), "it becomes critical", 40)
    assert shown(sidecar, "skewed").batch_in_flight_seconds > 3 * FLOOR


def test_storage_that_is_throttled_is_a_warning(spark, watch, throttled, tmp_path):
    written, place = threading.Event(), f"throttled://{tmp_path}/table"
    slow = Trap()
    query = start(rate(spark), "throttled", slow)
    sidecar = watched(watch, query)

    def write(batch):
        throttled(True)
        batch.coalesce(1).write.mode("append").parquet(place)
        written.set()

    slow.work = write
    until(lambda: severities(sidecar, "throttled"), "it warns", 40)
    seen = severities(sidecar, "throttled")
    throttled(False)
    seen |= over_time(sidecar, "throttled", written.is_set)
    slow.work = None

    assert ("warning", "task_running") in seen
    assert {severity for severity, _ in seen} == {"warning"}


def test_a_batch_that_waits_for_slots_of_a_sibling_is_a_warning(spark, watch):
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


def test_a_batch_that_retries_for_ever_becomes_critical(spark, watch):
    retried, free = Trap(), threading.Event()
    query = start(rate(spark), "retried", retried)
    sidecar = watched(watch, query, slow_critical_factor=3.0)

    def retry_for_ever(batch):
        while not free.is_set():
            batch.count()

    retried.work = retry_for_ever
    try:
        until(lambda: severities(sidecar, "retried"), "it warns", 20)
        assert {severity for severity, _ in severities(sidecar, "retried")} == {"warning"}
        critical = ("critical", "retrying")
        until(lambda: critical in severities(sidecar, "retried"), "it becomes critical", 20)
        assert shown(sidecar, "retried").batch_in_flight_seconds > 3 * FLOOR
    finally:
        free.set()
