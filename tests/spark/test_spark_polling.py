"""On real Spark: one command polls all runs; an odd run and a slow stop are handled."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from support.driver import Driver
from support.queries import SPARK_PATIENCE_SECONDS, rate, start, until
from support.repository import ROOT

from querypulse.listener.probe_report import Moves
from querypulse.listener.spark.event_paths import EventQueue
from querypulse.listener.spark.health_listener import HealthListener
from querypulse.listener.spark.probe import SparkProbe

pytestmark = [pytest.mark.spark, pytest.mark.every_spark, pytest.mark.thorough]


@pytest.fixture
def probe(spark):
    queue = EventQueue(spark, HealthListener(capacity=1, start=object, start_on=list))
    queue.listen(spark)
    probe = SparkProbe(spark, queue, closer_after_seconds=0.2)
    yield probe
    for query in spark.streams.active:
        query.stop()
    probe.release()


def runs(probe):
    return {run.facts.name: run for run in probe.poll(time.monotonic).runs if run.active}


@pytest.mark.fault(
    "Spark and its listeners",
    "An object that the probe cannot read among Spark's queries",
    "The others are polled",
)
def test_odd_object_among_sparks_queries_does_not_affect_others(spark, probe):
    """The object represents a run whose methods throw."""
    jvm = spark.sparkContext._jvm
    active = spark._jsparkSession.sharedState().activeStreamingQueries()
    odd = jvm.java.util.UUID.randomUUID()
    start(rate(spark), "plain", trigger="100 milliseconds")
    active.put(odd, jvm.java.lang.Object())
    try:
        first = runs(probe)["plain"]
        until(lambda: runs(probe)["plain"].batch_id > first.batch_id, "the query continues")
    finally:
        active.remove(odd)

    assert list(runs(probe)) == ["plain"]
    assert probe.details.missing == {"a query"}


def test_two_hung_batches_report_their_own_python_lines(spark, probe):
    """One belongs to another session."""
    free, held = threading.Event(), {"one": threading.Event(), "two": threading.Event()}
    other = spark.newSession()

    def hang_one(batch, batch_id):
        held["one"].set()
        free.wait(SPARK_PATIENCE_SECONDS)

    def hang_two(batch, batch_id):
        held["two"].set()
        free.wait(SPARK_PATIENCE_SECONDS)

    start(rate(spark), "one", hang_one)
    elsewhere = start(rate(other), "two", hang_two)
    try:
        assert all(event.wait(SPARK_PATIENCE_SECONDS) for event in held.values())
        until(lambda: all(run.work is not None for run in runs(probe).values()), "closer polls")
        polled = runs(probe)
    finally:
        free.set()
        elsewhere.stop()

    lines = {name: run.work.python_line.rpartition(" ")[2] for name, run in polled.items()}
    assert lines == {"one": "hang_one", "two": "hang_two"}
    assert {name: run.facts.session for name, run in polled.items()} == {
        "one": spark._jsparkSession.sessionUUID(),
        "two": other._jsparkSession.sessionUUID(),
    }
    assert probe.details.missing == set()


def test_batch_in_a_thread_pool_shows_progress(spark, probe):
    """Its jobs belong to no query's job group."""
    free, seen = threading.Event(), []

    def in_pool(batch, batch_id):
        with ThreadPoolExecutor(2) as pool:
            while not free.wait(0.05):
                list(pool.map(lambda _: spark.range(1000).count(), range(2)))

    def has_moved():
        seen.extend(run.work for run in runs(probe).values() if run.work is not None)
        return any(after.moved_since(before) is Moves.TASKS for before, after in pairwise(seen))

    start(rate(spark), "pool", in_pool)
    try:
        until(has_moved, "the batch progresses")
    finally:
        free.set()


SLOW_STOP = """
sys.path.insert(0, os.environ["TESTS"])
from pyspark.sql.streaming.listener import StreamingQueryListener
from support.fake_spark import FakeChannel
from querypulse.listener.spark.probe import SparkProbe

blocks, free = threading.Event(), threading.Event()
class Blocking(StreamingQueryListener):
    def onQueryStarted(self, event): pass
    def onQueryProgress(self, event):
        blocks.set()
        free.wait(240)
    def onQueryIdle(self, event): pass
    def onQueryTerminated(self, event): pass

spark.streams.addListener(Blocking())
query = start("busy")
blocks.wait(240)
probe = SparkProbe(spark, FakeChannel(), 20.0)
say(probe.context().value)
def polling():
    # Spark has a context as long as its stop waits for the listener.
    while (context := probe.context().value) == "running":
        time.sleep(0.01)
    say(f"{context}, while it stops: {spark.sparkContext._jsc is not None}")
    free.set()
thread = threading.Thread(target=polling)
thread.start()
spark.stop()
thread.join()
"""


def test_slow_spark_stop_counts_as_a_stop_by_the_application(tmp_path):
    """Spark marks the context as stopped as soon as the stop begins."""
    with Driver(SLOW_STOP, tmp_path, TESTS=str(ROOT / "tests")) as driver:
        driver.wait(SPARK_PATIENCE_SECONDS)

        assert driver.lines == ["running", "stopped_by_application, while it stops: True"], (
            driver.errors
        )
