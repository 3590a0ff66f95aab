"""On real Spark: batches without progress are stalled, and long ones with progress are slow."""

from __future__ import annotations

import re
import threading
import time
import urllib.request

import pytest
from support.http_double import HttpDouble, reply
from support.queries import SPARK_PATIENCE_SECONDS, Trap, commits, rate, shown, start, until

pytestmark = [pytest.mark.spark, pytest.mark.every_spark]

FLOOR = 10
"""A starved machine may finish no task for seconds."""
STALLED, SLOW = "StreamingQueryStalled", "StreamingBatchSlow"


def small_jobs(free):
    """A batch whose small jobs go on until ``free`` is set."""

    def work(rows):
        while not free.wait(0.3):
            rows.count()

    return work


def test_hung_batch_reports_the_python_line_it_blocks_on(spark, watch, pages, caplog):
    """A long batch beside it, with finishing tasks, is slow."""
    sidecar = watch(stall_floor_seconds=FLOOR)
    free, hung, slow = threading.Event(), Trap(), Trap()
    start(rate(spark), "sibling", lambda batch, _: batch.count())
    start(rate(spark), "hung", hung)
    start(rate(spark), "slow", slow)
    for name in ("sibling", "hung", "slow"):
        commits(sidecar, name, batches=2)

    slow.work = small_jobs(free)
    try:
        with hung.holding():
            stalled = pages.wait_for(STALLED, "hung").annotations
            in_flight = shown(sidecar, "hung").batch_in_flight_seconds
            slowed = pages.wait_for(SLOW, "slow")
    finally:
        slow.work = None
        free.set()
    pages.wait_for(STALLED, "hung", status="resolved")
    pages.wait_for(SLOW, "slow", status="resolved")

    assert stalled["reason"].startswith("batch_hung: batch ")
    assert stalled["spark_says"] == "Processing new data"
    assert "planned, never committed" in stalled["commit_log"]
    assert stalled["python_line"].endswith(" in wait_in_the_trap")
    assert "ForeachBatch" in stalled["stream_thread"]
    assert stalled["tasks"].endswith(" 0 running (no Spark job)")
    assert in_flight >= FLOOR
    assert slowed.labels["severity"] == "warning"
    # After enough batches it also says that this one has run more jobs than usual.
    assert "its tasks still finish" in slowed.annotations["reason"]
    assert {page.what for page in pages.pages} == {(STALLED, "hung"), (SLOW, "slow")}
    # Spark has answered every call of the probe.
    assert [record for record in caplog.records if "refuse" in record.message] == []
    assert [record for record in caplog.records if "does not" in record.message] == []


@pytest.fixture
def api():
    """The address of a service that takes a while for each answer."""

    def answer(handler):
        handler.double.closing.wait(0.3)
        reply(200)(handler)

    with HttpDouble(otherwise=answer) as double:
        yield double.url


def test_loop_of_requests_is_slow_and_a_blocked_call_is_a_warning_even_after_a_stop(
    spark, watch, pages, api
):
    sidecar = watch(stall_floor_seconds=FLOOR, repeat_interval_seconds=1)
    free, calls, blocked = threading.Event(), Trap(), Trap()

    def call_row_by_row(_):
        while not free.is_set():
            urllib.request.urlopen(api).read()

    start(rate(spark), "calls", calls)
    query = start(rate(spark), "blocked", blocked)
    for name in ("calls", "blocked"):
        commits(sidecar, name, batches=2)
    calls.work = call_row_by_row
    blocked.hold.set()
    try:
        slow, stalled = pages.wait_for(SLOW, "calls"), pages.wait_for(STALLED, "blocked")
        sidecar.expect_stop("blocked")
        stops = threading.Thread(target=query.stop)
        stops.start()
        until(lambda: "still runs" in reason_of(sidecar, "blocked"), "it says that it goes on")
        assert not query.isActive
    finally:
        blocked.free.set()
        free.set()
    stops.join(SPARK_PATIENCE_SECONDS)
    until(lambda: shown(sidecar, "blocked").state == "stopped", "the end of its thread is seen")

    assert slow.labels["severity"] == stalled.labels["severity"] == "warning"
    assert "its Python thread works at " in slow.annotations["reason"]
    assert " in call_row_by_row" in slow.annotations["reason"]
    assert "blocked at " in stalled.annotations["reason"]
    assert (STALLED, "calls") not in {page.what for page in pages.pages}


def test_long_task_is_named_beside_its_siblings(spark, watch, pages):
    sidecar, skewed = watch(stall_floor_seconds=FLOOR), Trap()

    def one_of_five_sleeps(_):
        tasks = spark.sparkContext.parallelize(range(5), 5)
        tasks.foreach(lambda number: time.sleep(600.0 if number == 3 else 0.2))

    query = start(rate(spark), "skewed", skewed)
    commits(sidecar, "skewed", batches=2)
    skewed.work = one_of_five_sleeps
    named = r"task_running: .* 1 task running \(partition 3 of stage \d+ on \S+ for \d+ s, while its siblings took [\d.]+ s\)"
    try:
        until(lambda: re.match(named, reason_of(sidecar, "skewed")), "the long task is named")
        page = pages.wait_for(STALLED, "skewed")
    finally:
        query.stop()

    assert page.labels["severity"] == "warning"


def reason_of(sidecar, name):
    """The reason that is shown of a query, empty without one."""
    query = shown(sidecar, name)
    return "" if query is None else query.reason


LISTS_FOR_EVER = """
public class EndlessListing extends org.apache.hadoop.fs.RawLocalFileSystem {
    public java.net.URI getUri() {
        return java.net.URI.create("endless:///");
    }
    public org.apache.hadoop.fs.FileStatus[] listStatus(org.apache.hadoop.fs.Path path)
            throws java.io.IOException {
        while (Boolean.getBoolean("test.lists")) {
            System.nanoTime();
        }
        return super.listStatus(path);
    }
}
"""


@pytest.fixture
def endless(spark):
    """A file system of Hadoop that works on a listing as long as the property ``test.lists`` is set."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    loader = settings.getClassLoader()
    compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(LISTS_FOR_EVER)
    settings.setClassLoader(compiler.getClassLoader())
    settings.set("fs.endless.impl", "EndlessListing")
    yield "endless://"
    settings.unset("fs.endless.impl")
    settings.setClassLoader(loader)


def test_first_listing_that_works_is_slow(spark, watch, pages, endless, tmp_path):
    files = spark.readStream.format("text").load(f"{endless}{tmp_path}")
    watch(stall_floor_seconds=FLOOR / 2, start_grace_seconds=FLOOR / 2)
    system = spark._jvm.java.lang.System
    system.setProperty("test.lists", "true")
    query = start(files, "lists")
    try:
        page = pages.wait_for(SLOW, "lists")
    finally:
        system.clearProperty("test.lists")
        query.stop()

    assert page.labels["severity"] == "warning"
    assert page.annotations["reason"].startswith("planning the next batch for ")
    assert "its thread in the driver works at " in page.annotations["reason"]
    assert {page.what for page in pages.pages} == {(SLOW, "lists")}
