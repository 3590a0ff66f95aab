"""On real Spark: each kind of failure raises its own alert, and no other alert."""

from __future__ import annotations

import re
import textwrap

import pyspark
import pytest
from support.driver import SHARES_THE_QUEUE, Driver
from support.failing_workloads import (
    FAILING_FROM_THE_START,
    FROM_PYTHON,
    HEALTHY_AT_FIRST,
    QUERIES,
    healthy,
    overflowed,
)
from support.queries import until
from support.sources import REPORTS_OFFSETS
from support.spark_harness import Diary

# A busy machine takes minutes to start all workloads.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.every_spark,
    pytest.mark.thorough,
    pytest.mark.timeout(900),
]

IS_OLDEST = pyspark.__version__.startswith("3.")
BATCHES_LATER = 8
"""Of two seconds each: what is reported late is reported by then."""


def strike_all(harness, watch, pages, at_first, later=()):
    """Let workloads fail while they are watched; return the first page of each alert."""
    workloads = [bring(harness) for bring in at_first]
    names = {workload.query.name for workload in workloads}
    until(lambda: all(harness.committed(name) > 1 for name in names), "all commit")
    sidecar = watch(queries=QUERIES)
    diary = Diary(harness, sidecar)
    until(lambda: names <= diary.in_state("running"), "the sidecar sees all of them running")
    workloads += [bring(harness) for bring in later]
    for workload in workloads:
        workload.strike()
    due = [reported for workload in workloads for reported in workload.reported]
    wanted = {(page.alertname, page.query) for page in due}
    first = {}

    def opened():
        for alert in sidecar.alerts():
            first.setdefault((alert.name, alert.query), alert)
        return wanted <= set(first)

    try:
        until(opened, "all are open")
    except AssertionError:
        pytest.fail(f"not open: {wanted - set(first)}")
    until(lambda: {query for _, query in wanted} <= queries(pages), "people are notified of each")
    after = len(diary["healthy"].commits) + BATCHES_LATER
    until(lambda: len(diary["healthy"].commits) >= after, "the healthy query commits on")
    opened()

    # On a busy machine, a batch that hangs may be slow first.
    slow = {("StreamingBatchSlow", query) for name, query in wanted if "Stalled" in name}
    assert wanted <= set(first) <= wanted | slow
    reasons = {page: first[page[:2]].annotations["reason"] for page in due}
    assert {page: why for page, why in reasons.items() if not why.startswith(page.reason)} == {}


def queries(pages):
    return {query for _, _, query in pages.reported}


def test_failing_queries_raise_the_right_alerts(harness, watch, pages):
    at_first = [bring for bring in HEALTHY_AT_FIRST if bring is not overflowed or not IS_OLDEST]
    strike_all(harness, watch, pages, at_first, FAILING_FROM_THE_START)

    # A new run of the crash loop commits; nothing else recovers.
    recovered = {query for status, _, query in pages.reported if status == "resolved"}
    assert recovered <= {"crash_loop"}


@pytest.mark.newest
@pytest.mark.skipif(
    not REPORTS_OFFSETS, reason="needs Spark 4.2: no older one asks a Python source for its end"
)
def test_offsets_that_misbehave_raise_the_right_alerts(harness, watch, pages):
    strike_all(harness, watch, pages, (*FROM_PYTHON, healthy))


@pytest.mark.fault(
    "Spark and its listeners",
    "A slow neighbour makes Spark's listener queue overflow, on a driver that refuses us our own",
    "The loss is reported; no query's alert fires",
)
def test_overflow_of_the_listener_bus_pages_and_no_query_alert_fires(pages, tmp_path):
    script = """
    from pyspark.sql.streaming.listener import StreamingQueryListener
    class BlockingListener(StreamingQueryListener):
        def onQueryStarted(self, event): pass
        def onQueryProgress(self, event): time.sleep(3600)
        def onQueryIdle(self, event): pass
        def onQueryTerminated(self, event): pass
    def committed():
        return min(query.last_commit_batch for query in sidecar.snapshot().queries)
    sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"], stall_floor_seconds=12)
    start("one"); start("two")
    until_commits(sidecar, "one", "two")
    spark.streams.addListener(BlockingListener())
    until(sidecar.alerts)
    after = committed() + 30
    until(lambda: committed() >= after)
    say("both went on")
    time.sleep(3600)
    """
    small_bus = "--conf spark.scheduler.listenerbus.eventqueue.streams.capacity=10 pyspark-shell"
    script = SHARES_THE_QUEUE + textwrap.dedent(script)
    with Driver(script, tmp_path, PAGES=pages.url, PYSPARK_SUBMIT_ARGS=small_bus) as driver:
        page = pages.wait_for("QuerypulseEventsMissing", "*")
        driver.wait_for_line("both went on")

    assert page.annotations["reason"].startswith("Spark's listener queue has dropped ")
    assert page.annotations["other_listeners"].endswith("listeners on it: a Python listener")
    assert pages.reported == [("firing", "QuerypulseEventsMissing", "*")]


NEIGHBOUR = """
package com.acme;
import org.apache.spark.sql.streaming.StreamingQueryListener;
public class Lineage extends StreamingQueryListener {
  public void onQueryStarted(StreamingQueryListener.QueryStartedEvent event) {}
  public void onQueryProgress(StreamingQueryListener.QueryProgressEvent event) {
    try { Thread.sleep(3600000L); } catch (InterruptedException stopped) {}
  }
  public void onQueryTerminated(StreamingQueryListener.QueryTerminatedEvent event) {}
}
"""


@pytest.mark.nightly
@pytest.mark.fault(
    "Spark and its listeners",
    "A slow neighbour makes the listener queue that others share overflow",
    "The queue and the slow listener are named once; no alert fires",
)
def test_neighbour_whose_queue_drops_events_is_named_once(pages, tmp_path):
    """It costs other listeners their events, and querypulse none."""
    script = f"""
    import logging
    from pyspark.sql.streaming.listener import StreamingQueryListener
    class Quick(StreamingQueryListener):
        def onQueryStarted(self, event): pass
        def onQueryProgress(self, event): pass
        def onQueryIdle(self, event): pass
        def onQueryTerminated(self, event): pass
    logged = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: logged.append(record.getMessage())
    logging.getLogger("querypulse").addHandler(handler)
    sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"])
    spark.streams.addListener(sidecar.listener)
    spark.streams.addListener(Quick())
    start("one"); start("two")
    until_commits(sidecar, "one", "two")
    time.sleep(6)
    say(f"before: {{sidecar.snapshot().monitor.other_listeners}}")
    jvm = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = loader.loadClass("org.codehaus.janino.SimpleCompiler").newInstance()
    compiler.setParentClassLoader(loader)
    compiler.cook({NEIGHBOUR!r})
    slow = compiler.getClassLoader().loadClass("com.acme.Lineage").newInstance()
    spark.streams._jsqm.addListener(slow)
    until(lambda: sidecar.snapshot().monitor.other_listeners)
    first = sidecar.snapshot().monitor.other_listeners
    until(lambda: sidecar.snapshot().monitor.other_listeners != first)
    for text in sidecar.snapshot().monitor.other_listeners: say(f"status: {{text}}")
    for text in logged:
        if "pre-flight" not in text: say(f"log: {{text}}")
    say("done")
    time.sleep(3600)
    """
    small_bus = "--conf spark.scheduler.listenerbus.eventqueue.streams.capacity=200 pyspark-shell"
    with Driver(script, tmp_path, PAGES=pages.url, PYSPARK_SUBMIT_ARGS=small_bus) as driver:
        driver.wait_for_line("done")
        before, log, status = (driver.line(part) for part in ("before: ", "log: ", "status: "))
        logged = [line for line in driver.lines if line.startswith("log: ")]

    assert before == "before: ()"
    text = (
        r"Spark has dropped \d+ events of its listener queue streams while com.acme.Lineage was at "
        r"work; other listeners on it: a Python listener, com.acme.Lineage"
    )
    assert re.fullmatch(f"status: {text}", status)
    assert len(logged) == 1
    assert re.fullmatch(f"log: querypulse: {text}", log)
    assert pages.reported == []
