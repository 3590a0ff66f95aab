"""On real Spark: each kind of failure raises its own alert in time, and no other alert."""

from __future__ import annotations

import textwrap
import time

import pytest
from support.driver import SHARES_THE_QUEUE, Driver
from support.failing_workloads import (
    FAILING_FROM_THE_START,
    FLOOR,
    HEALTHY_AT_FIRST,
    SETTINGS,
    START_GRACE,
    ExpectedPage,
)
from support.queries import until
from support.spark_harness import Diary, SparkHarness

# A busy machine takes minutes to start all workloads.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SLACK_SECONDS = 5
"""Seventeen queries, on a busy machine."""


@pytest.fixture
def harness(spark, watch, tmp_path):
    """Depends on ``watch``, so that the sidecar closes before its queries stop."""
    harness = SparkHarness(spark, tmp_path)
    yield harness
    harness.close()


def test_failing_queries_raise_the_right_alerts_in_time(harness, watch, pages):
    workloads = [bring(harness) for bring in HEALTHY_AT_FIRST]
    names = {workload.query.name for workload in workloads}
    until(lambda: all(harness.committed(name) > 1 for name in names), "all commit", 120)
    sidecar, watched_at = watch(**SETTINGS), time.monotonic()
    diary = Diary(harness, sidecar)
    until(lambda: names <= diary.in_state("running"), "the sidecar sees all of them running")
    workloads += [bring(harness) for bring in FAILING_FROM_THE_START]
    for workload in workloads:
        workload.strike()

    due = [reported for workload in workloads for reported in workload.reported]
    due.append(
        ExpectedPage("StreamingQueryMissing", "never_started", lambda: watched_at, START_GRACE)
    )
    reported = first_pages(pages, {(one.alertname, one.query) for one in due})

    assert set(reported) == {(one.alertname, one.query) for one in due}
    reasons = {one: reported[one[:2]].annotations["reason"] for one in due}
    assert {one: why for one, why in reasons.items() if not why.startswith(one.reason)} == {}
    lateness = {one[:2]: reported[one[:2]].at - due_at(one, diary) for one in due}
    assert {what: late for what, late in lateness.items() if late > SLACK_SECONDS} == {}
    # A new run of the crash loop commits; nothing else recovers.
    recovered = {query for status, _, query in pages.reported if status == "resolved"}
    assert recovered <= {"crash_loop"}
    crashes = [(status, what) for status, what, query in pages.reported if query == "crash_loop"]
    flaps = crashes.index(("firing", "StreamingQueryFlapping"))
    assert ("firing", "StreamingQueryFailed") not in crashes[flaps:]


def first_pages(pages, wanted):
    """The first page of each alert, once all wanted pages arrived and a little later."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not wanted <= {page.what for page in pages.pages}:
        time.sleep(0.1)
    time.sleep(FLOOR)
    return {page.what: page for page in reversed(pages.pages) if page.status == "firing"}


def due_at(reported, diary):
    """The earliest moment of the page, in monotonic seconds."""
    window = diary[reported.query].window if reported.window is None else reported.window
    return reported.began_at() + window


@pytest.mark.fault(
    "Spark and its listeners",
    "Our listener is removed by Spark, then through the public API",
    "It is added again; then the missing events are reported",
)
def test_dropped_listener_is_registered_again_and_a_removed_one_pages(pages, tmp_path):
    script = """
    sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"], stall_floor_seconds=7)
    start("bronze")
    until_commits(sidecar, "bronze")
    spark.streams._jsqm.removeListener(sidecar._runtime.path.java_listener)
    while sidecar.snapshot().monitor.reregistrations == 0:
        time.sleep(0.05)
    time.sleep(3)
    say(f"alerts: {len(sidecar.alerts())}")
    spark.streams.removeListener(sidecar.listener)
    say(f"{time.monotonic()}")
    time.sleep(60)
    """
    script = SHARES_THE_QUEUE + textwrap.dedent(script)
    with Driver(script, tmp_path, PAGES=pages.url) as driver:
        driver.wait_for_line("alerts: 0")
        page = pages.wait_for("QuerypulseEventsMissing", "*")

        assert page.at - float(driver.lines[1]) < 7 + SLACK_SECONDS
        assert page.annotations["reason"].startswith("the probe saw commits that no event reported")
        time.sleep(7)
        assert pages.reported == [("firing", "QuerypulseEventsMissing", "*")]


@pytest.mark.fault(
    "Spark and its listeners",
    "A slow neighbour makes Spark's listener queue overflow, on a driver that refuses us our own",
    "The loss is reported; no query's alert fires",
)
def test_overflow_of_the_listener_bus_pages_and_no_query_alert_fires(pages, tmp_path):
    script = """
    from pyspark.sql.streaming.listener import StreamingQueryListener
    class SlowListener(StreamingQueryListener):
        def onQueryStarted(self, event): pass
        def onQueryProgress(self, event): time.sleep(0.5)
        def onQueryIdle(self, event): pass
        def onQueryTerminated(self, event): pass
    sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"], stall_floor_seconds=7)
    start("one"); start("two")
    until_commits(sidecar, "one", "two")
    spark.streams.addListener(SlowListener())
    say(f"{time.monotonic()}")
    time.sleep(60)
    """
    small_bus = "--conf spark.scheduler.listenerbus.eventqueue.streams.capacity=10 pyspark-shell"
    script = SHARES_THE_QUEUE + textwrap.dedent(script)
    with Driver(script, tmp_path, PAGES=pages.url, PYSPARK_SUBMIT_ARGS=small_bus) as driver:
        page = pages.wait_for("QuerypulseEventsMissing", "*", timeout=40)

        assert page.at - float(driver.lines[0]) < 7 + SLACK_SECONDS
        assert page.annotations["reason"].startswith("Spark's listener queue has dropped ")
        time.sleep(14)
        assert pages.reported == [("firing", "QuerypulseEventsMissing", "*")]
