"""On real Spark: one command polls all runs; an odd run and a slow stop are handled."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from support.driver import Driver
from support.fake_spark import FakeChannel
from support.queries import Trap, rate, start, until
from support.repository import ROOT

from querypulse.listener.spark.probe import SparkProbe

pytestmark = pytest.mark.spark


@pytest.fixture
def probe(spark):
    one = SparkProbe(spark, FakeChannel(), closer_after_seconds=0.2)
    yield one
    for query in spark.streams.active:
        query.stop()
    one.release()


def runs(probe):
    return {run.facts.name: run for run in probe.poll(time.monotonic).runs if run.active}


def test_session_of_a_query_is_the_one_that_started_it(spark, probe):
    other = spark.newSession()
    start(rate(spark), "here")
    elsewhere = start(rate(other), "elsewhere")
    sessions = {name: run.facts.session for name, run in runs(probe).items()}
    elsewhere.stop()

    assert sessions == {
        "here": spark._jsparkSession.sessionUUID(),
        "elsewhere": other._jsparkSession.sessionUUID(),
    }
    assert probe.details.missing == set()


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
    assert probe.details.missing == {"living_run", "trigger", f"run of query {odd}"}


def test_two_hung_batches_report_their_own_python_lines(spark, probe):
    traps = {"one": Trap(), "two": Trap()}
    for name, trap in traps.items():
        trap.hold.set()
        start(rate(spark), name, hangs_in(name, trap))
    try:
        assert all(trap.held.wait(60) for trap in traps.values())
        until(lambda: all(run.work is not None for run in runs(probe).values()), "closer polls")
        lines = {name: run.work.python_line for name, run in runs(probe).items()}
    finally:
        for trap in traps.values():
            trap.free.set()

    assert {name: line.rpartition(" ")[2] for name, line in lines.items()} == {
        "one": "hang_one",
        "two": "hang_two",
    }
    assert probe.details.missing == set()


def hangs_in(name, trap):
    """A ``foreachBatch`` function that hangs in ``hang_one`` or ``hang_two``."""

    def hang_one():
        trap.held.set()
        trap.free.wait(60)

    def hang_two():
        trap.held.set()
        trap.free.wait(60)

    return lambda batch, batch_id: {"one": hang_one, "two": hang_two}[name]()


def test_batch_in_a_thread_pool_shows_progress(spark, probe):
    """Its jobs belong to no query's job group, unlike those of a sibling."""
    free = Trap()

    def in_pool(batch, batch_id):
        with ThreadPoolExecutor(2) as pool:
            while not free.free.is_set():
                list(pool.map(lambda _: spark.range(1000).count(), range(2)))

    start(rate(spark), "pool", in_pool)
    seen = []

    def moved():
        work = runs(probe)["pool"].work
        if work is not None and (not seen or seen[-1] is not work):
            seen.append(work)
        return any(after.moved_since(before) for before, after in pairwise(seen))

    try:
        until(moved, "the batch progresses", timeout=60)
    finally:
        free.free.set()


def test_hung_batch_beside_a_busy_sibling_shows_no_progress(spark, probe):
    trap, free = Trap(), Trap()
    trap.hold.set()

    def busy(batch, batch_id):
        while not free.free.is_set():
            batch.sparkSession.range(1000).count()

    start(rate(spark), "hung", trap)
    start(rate(spark), "busy", busy)
    seen = {"hung": [], "busy": []}

    def polled():
        for name, run in runs(probe).items():
            if run.work is not None and (not seen[name] or seen[name][-1] is not run.work):
                seen[name].append(run.work)
        return min(map(len, seen.values())) > 8

    try:
        assert trap.held.wait(60)
        until(polled, "closer polls", timeout=60)
    finally:
        free.free.set()
        trap.free.set()

    assert moves(seen["hung"]) == 0
    assert moves(seen["busy"]) > 0


def moves(seen):
    return sum(after.moved_since(before) for before, after in pairwise(seen))


SLOW_STOP = """
sys.path.insert(0, os.environ["TESTS"])
from pyspark.sql.streaming.listener import StreamingQueryListener
from support.fake_spark import FakeChannel
from querypulse.listener.spark.probe import SparkProbe

class Slow(StreamingQueryListener):
    def onQueryStarted(self, event): pass
    def onQueryProgress(self, event): time.sleep(0.5)
    def onQueryIdle(self, event): pass
    def onQueryTerminated(self, event): pass

spark.streams.addListener(Slow())
query = start("busy")
while query.lastProgress is None:
    time.sleep(0.05)
time.sleep(2)
probe = SparkProbe(spark, FakeChannel(), 20.0)
seen, done = [], threading.Event()
def polling():
    while not done.is_set():
        seen.append((probe.context().value, spark.sparkContext._jsc is None))
        time.sleep(0.01)
thread = threading.Thread(target=polling)
thread.start()
while not seen:
    time.sleep(0.01)
spark.stop()
done.set()
thread.join()
say(sorted({context for context, over in seen}))
say(any(context == "stopped_by_application" and not over for context, over in seen))
"""


def test_slow_spark_stop_counts_as_a_stop_by_the_application(tmp_path):
    """Spark marks the context as stopped as soon as the stop begins."""
    with Driver(SLOW_STOP, tmp_path, TESTS=str(ROOT / "tests")) as driver:
        driver.wait(120)

        assert driver.lines == ["['running', 'stopped_by_application']", "True"], driver.errors
