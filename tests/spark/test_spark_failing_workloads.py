"""On real Spark: each kind of failure raises its own alert, and no other alert."""

from __future__ import annotations

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
    after = committed() + 80
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
    assert pages.reported == [("firing", "QuerypulseEventsMissing", "*")]
