"""On real Spark: each event path delivers events, and Spark's threads run no Python of ours."""

from __future__ import annotations

import itertools
import os
import re
import threading

import pytest
from py4j.clientserver import ClientServerConnection
from pyspark.sql.streaming.listener import StreamingQueryListener
from support.driver import Driver
from support.queries import SPARK_PATIENCE_SECONDS, Boom, Trap, commits, rate, shown, start, until

from querypulse.listener.spark import event_paths
from querypulse.listener.spark import jvm as jvm_module
from querypulse.listener.spark.health_listener import HealthListener
from querypulse.sidecar import Sidecar, attach

pytestmark = [pytest.mark.spark, pytest.mark.every_spark]

PATHS = ["bus_queue", pytest.param("python_proxy", marks=pytest.mark.thorough)]


def refuse_janino(monkeypatch):
    monkeypatch.setattr(jvm_module, "COMPILER", "no.such.Compiler")


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    """Each path, selected by disabling the better one."""
    if request.param == "python_proxy":
        refuse_janino(monkeypatch)
    return request.param


def monitor(sidecar):
    return sidecar.snapshot().monitor


def events(sidecar, kind):
    return monitor(sidecar).events.get(kind, 0)


def bus_listeners(spark):
    bus = spark._jsc.sc().listenerBus().listeners()
    return [listener for listener in bus if listener.getClass().getName() == "QuerypulseListener"]


# -- each path --------------------------------------------------------------------------------


@pytest.mark.fault(
    "Spark and its listeners",
    "The bus queue is refused",
    "The Python proxy delivers each event once",
)
def test_every_path_delivers_each_event_once(path, spark, watch, pages, tmp_path):
    """In every session, however often the listener is added; and it leaves nothing behind."""
    sidecar = watch()
    assert monitor(sidecar).listener_path == path
    other = spark.newSession()
    for _ in range(2):
        other.streams.addListener(sidecar.listener)
    query = start(rate(other), "stopped")
    commits(sidecar, "stopped", batches=3)
    query.stop()
    start(spark.readStream.schema("a long").json(str(tmp_path)), "idle")
    until(lambda: events(sidecar, "idle"), "an idle event arrives")
    start(rate(spark), "failed", trap := Trap())
    commits(sidecar, "failed")
    trap.die.set()
    pages.wait_for("StreamingQueryFailed", "failed")
    until(lambda: events(sidecar, "terminated") == 2, "both ends arrive")
    assert events(sidecar, "started") == 3
    start(rate(spark.newSession()), "elsewhere")
    commits(sidecar, "elsewhere")
    before = events(sidecar, "progress")
    until(lambda: events(sidecar, "progress") > before, "events of another session arrive")

    assert not any(monitor(sidecar).events_dropped.values())
    assert monitor(sidecar).listener_registered

    for _ in range(2):
        other.streams.removeListener(sidecar.listener)
    ours = sidecar._runtime.path.java_listener
    sidecar.close()
    assert [t.name for t in threading.enumerate() if t.name.startswith("querypulse")] == []
    assert not any(listener.equals(ours) for listener in spark.streams._jsqm.listListeners())
    assert bus_listeners(spark) == []


def test_add_listener_starts_the_sidecar_with_all_settings(path, spark, pages, monkeypatch):
    monkeypatch.setitem(os.environ, "QUERYPULSE_WEBHOOK_URL", pages.url)
    session = {
        "spark.querypulse.app_name": "orders",
        "spark.querypulse.expected_queries": "a -> b",
        "spark.querypulses.app_name": "not ours",
    }
    for name, text in session.items():
        spark.conf.set(name, text)
    try:
        sidecar = Sidecar(http_port=0)
    finally:
        for name in session:
            spark.conf.unset(name)
    assert sidecar.settings.expected_queries == ("a -> b",)
    assert sidecar.url is None
    with pytest.raises(RuntimeError, match="has not started"):
        sidecar.snapshot()
    spark.streams.addListener(sidecar.listener)
    query = start(rate(spark), "by hand", trap := Trap())
    try:
        assert attach(spark) is sidecar
        assert sidecar.snapshot().app == "orders"
        ours = sidecar._runtime.path.java_listener
        listeners = spark.streams._jsqm.listListeners()
        assert sum(listener.equals(ours) for listener in listeners) == 1
        commits(sidecar, "by hand")
        trap.die.set()
        pages.wait_for("StreamingQueryFailed", "by hand")
    finally:
        query.stop()
        spark.streams.removeListener(sidecar.listener)
        sidecar.close()


@pytest.mark.thorough
@pytest.mark.fault(
    "Spark and its listeners",
    "Our listener is removed by Spark, then through the public API",
    "It is added again; then the missing events are reported",
)
def test_dropped_listener_is_registered_again_and_a_removed_one_pages(
    spark, watch, pages, monkeypatch
):
    refuse_janino(monkeypatch)
    sidecar = watch(stall_floor_seconds=12)
    until(lambda: monitor(sidecar).listener_registered, "the listener is registered")
    spark.streams._jsqm.removeListener(sidecar._runtime.path.java_listener)

    until(lambda: monitor(sidecar).reregistrations == 1, "the listener is registered again")
    start(rate(spark), "received again")
    until(lambda: events(sidecar, "progress"), "events arrive again")

    # A removal without an addition takes nothing away.
    spark.streams.removeListener(sidecar.listener)
    listeners = spark.streams._jsqm.listListeners()
    assert any(listener.equals(sidecar._runtime.path.java_listener) for listener in listeners)

    other = spark.newSession()
    other.streams.addListener(sidecar.listener)
    spark.streams.removeListener(sidecar.listener)
    until(lambda: monitor(sidecar).listener_registered is False, "the removal is detected")
    start(rate(spark), "probed")
    page = pages.wait_for("QuerypulseEventsMissing", "*")
    assert page.annotations["reason"].startswith("the probe saw commits that no event reported")
    assert shown(sidecar, "probed").last_commit_batch is not None
    assert monitor(sidecar).reregistrations == 1
    assert pages.reported == [("firing", "QuerypulseEventsMissing", "*")]
    other.streams._jsqm.removeListener(sidecar._runtime.path.java_listener)


# -- the bus queue ----------------------------------------------------------------------------


def test_no_python_of_ours_runs_on_sparks_threads(spark, watch, monkeypatch):
    """Py4J's callback threads neither run our code nor send our data."""
    called = []
    call_proxy = ClientServerConnection._call_proxy

    def counted(self, obj_id, command):
        called.append(self.pool[obj_id])
        return call_proxy(self, obj_id, command)

    monkeypatch.setattr(ClientServerConnection, "_call_proxy", counted)
    sidecar = watch()
    spark.streams.addListener(sidecar.listener)
    start(rate(spark), "quiet")
    commits(sidecar, "quiet", batches=3)

    assert events(sidecar, "progress")
    assert called == []
    assert not sidecar.listener.callback_durations
    spark.streams.removeListener(sidecar.listener)


@pytest.mark.fault(
    "Spark and its listeners",
    "Our listener is removed from Spark's bus",
    "It is added again; no query is lost",
)
def test_bus_listener_dropped_by_spark_is_registered_again(spark, watch):
    sidecar = watch()
    (ours,) = bus_listeners(spark)
    spark._jsc.sc().listenerBus().removeListener(ours)

    until(lambda: monitor(sidecar).reregistrations == 1, "the listener is registered again")
    assert len(bus_listeners(spark)) == 1
    start(rate(spark), "received again")
    until(lambda: events(sidecar, "progress"), "events arrive again")
    assert monitor(sidecar).listener_registered


@pytest.mark.fault(
    "Spark and its listeners",
    "Queries of new sessions fail within 50 ms of their start",
    "Each is reported",
)
def test_queries_that_fail_within_milliseconds_are_all_reported(spark, watch, pages):
    """Between two polls of the probe, which lists only what runs. Others complete meanwhile."""
    sidecar = watch(probe_interval_seconds=60)

    def fail(batch, batch_id):
        raise Boom("at once")

    names = [f"newborn {number}" for number in range(4)]
    for name in names:
        with pytest.raises(Exception, match="at once"):
            start(rate(spark.newSession()), name, fail).awaitTermination()
    # No event contains the trigger, and only the trigger shows that the query should end.
    writer = rate(spark).writeStream.queryName("short").format("noop")
    writer.trigger(availableNow=True).start().awaitTermination()
    for name in names:
        pages.wait_for("StreamingQueryFailed", name)
    until(lambda: shown(sidecar, "short").state == "completed", "the query is completed")


@pytest.mark.thorough
def test_start_under_a_job_tag_is_received(spark, watch):
    """PySpark 4.1 to 4.3 loses this event, because its own conversion fails."""
    sidecar = watch()
    spark.sparkContext.addJobTag("nightly")
    try:
        start(rate(spark), "tagged")
        until(lambda: events(sidecar, "started") == 1, "its start arrives")
    finally:
        spark.sparkContext.removeJobTag("nightly")


def test_java_classes_compile_for_java_8(spark):
    compiler_class = jvm_module.COMPILER
    jvm = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = loader.loadClass(compiler_class).newInstance()
    compiler.setParentClassLoader(loader)
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.cook(jvm_module.java_source("java8"))


@pytest.fixture
def second(spark, monkeypatch):
    """The queue of another process on this JVM; it holds two events of each kind."""
    monkeypatch.setattr(event_paths, "PROGRESS_CAPACITY", 2)
    monkeypatch.setattr(event_paths, "LIFECYCLE_CAPACITY", 2)
    queue = event_paths.EventQueue(spark, HealthListener(capacity=1, start=object, start_on=list))
    yield queue
    queue.release()


def test_each_process_on_the_jvm_has_its_own_bus_queue_until_it_closes(spark, watch, second):
    """Listeners on one queue would share its thread, and each waits for events to gather."""

    def names():
        taken = spark.sparkContext._jvm.java.lang.System.getProperties().stringPropertyNames()
        prefix = "querypulse.bus_queue."
        return {name.removeprefix(prefix) for name in taken if name.startswith(prefix)}

    sidecar = watch()
    second.listen(spark)
    assert names() == {"querypulse", "querypulse-2"}
    sidecar.close()
    assert names() == {"querypulse-2"}
    watch()
    assert len(names()) == 2
    second.release()
    assert names() == {"querypulse"}
    counters = spark._jsc.sc().listenerBus().metrics().metricRegistry().getCounters()
    measured = re.findall(r"queue\.(querypulse[-\w]*)\.", str(counters.keySet().toString()))
    assert [name for name in measured if not re.fullmatch(r"querypulse(-\d)?", name)] == []


class Quiet(StreamingQueryListener):
    """A listener of the application."""

    def onQueryStarted(self, event):
        pass

    onQueryProgress = onQueryIdle = onQueryTerminated = onQueryStarted  # noqa: N815


JOBS = "package com.acme; public class Jobs extends org.apache.spark.scheduler.SparkListener {}"


@pytest.fixture
def quiet(spark):
    """A listener of the application in the session, and one on two queues of Spark's bus."""
    loader = spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = loader.loadClass(jvm_module.COMPILER).newInstance()
    compiler.setParentClassLoader(loader)
    compiler.cook(JOBS)
    jobs = compiler.getClassLoader().loadClass("com.acme.Jobs").newInstance()
    spark._jsc.sc().addSparkListener(jobs)
    # As vendors do, by a way that is private to Spark.
    spark._jsc.sc().listenerBus().addToStatusQueue(jobs)
    quiet = Quiet()
    spark.streams.addListener(quiet)
    yield quiet
    spark.streams.removeListener(quiet)
    spark._jsc.sc().removeSparkListener(jobs)


def test_only_drops_of_other_listeners_since_the_attach_are_named(spark, second, quiet):
    registry = spark._jsc.sc().listenerBus().metrics().metricRegistry()
    due = itertools.count(step=event_paths.CHECK_EVERY_SECONDS)

    def named_after(drops, *queues):
        for queue in queues:
            registry.counter(f"queue.{queue}.numDroppedEvents").inc(drops)
        return [(q.name, q.dropped, q.listeners) for q in second.check(next(due)).full_queues]

    registry.counter("queue.streams.numDroppedEvents").inc(5)
    second.listen(spark)
    spark.streams._jsqm.addListener(second.java_listener)
    assert named_after(0) == []
    assert named_after(9, "appStatus", "eventLog", "executorManagement", "querypulse") == []

    on_streams = ("streams", 7, ("a Python listener",))
    assert named_after(7, "streams") == [on_streams]
    assert named_after(3, "shared") == [("shared", 3, ("com.acme.Jobs",)), on_streams]

    spark.streams.removeListener(quiet)
    assert named_after(1, "streams") == [("shared", 3, ("com.acme.Jobs",))]
    spark.streams._jsqm.removeListener(second.java_listener)


@pytest.mark.thorough
def test_full_queue_drops_by_kind_and_counts_and_an_end_wakes_its_reader(spark, second):
    assert second.java.listenOnBus(spark._jsc.sc().listenerBus())
    queries = [start(rate(spark), f"full {number}") for number in range(3)]
    until(lambda: all(len(query.recentProgress) > 3 for query in queries), "all commit")
    # While events are taken, others would get their places.
    for query in queries:
        query.stop()
    spark._jsc.sc().listenerBus().waitUntilEmpty()
    kinds = [received.kind.value for received in second.take(0.0)]

    assert sorted(kinds) == ["progress", "progress", "started", "started"]
    assert second.drops["lifecycle_queue_full"] == 1 + len(queries)
    assert second.drops["progress_queue_full"] > 0

    query, ends = start(rate(spark), "ends"), []

    def read():
        while not ends:
            ends.extend(
                event for event in second.take(10_000.0) if event.kind.value == "terminated"
            )

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    query.stop()
    reader.join(SPARK_PATIENCE_SECONDS)
    assert not reader.is_alive()


@pytest.mark.thorough
def test_queue_that_nobody_reads_leaves_the_bus_and_counts_what_it_misses(spark, second):
    assert second.java.listenOnBus(spark._jsc.sc().listenerBus())
    second.java.abandonAfter(0)
    query = start(rate(spark), "unread")
    until(lambda: not bus_listeners(spark), "it leaves the bus")
    query.stop()

    assert second.java.busHealth().startswith("false")
    second.take(0.0)
    assert second.drops["lifecycle_queue_full"] + second.drops["progress_queue_full"] > 0


# -- job counts -------------------------------------------------------------------------------

OUTLIVED = """
from pathlib import Path
from querypulse.listener.spark.event_paths import EventQueue
from querypulse.listener.spark.health_listener import HealthListener
folder, context = Path(sys.argv[1]), spark.sparkContext
queue = EventQueue(spark, HealthListener(capacity=1, start=object, start_on=list))
bus = spark._jsc.sc().listenerBus()
assert queue.java.listenOnBus(bus)

def hold(gate):
    (folder / f"{gate}.began").touch()
    until((folder / gate).exists)
def counts():
    bus.waitUntilEmpty()
    return queue.job_counts().by_query[""]
def run(job):
    thread = threading.Thread(target=job, daemon=True)
    thread.start()
    return thread
def tasks_run():
    return sum(info.numRunningTasks() for info in spark._jsc.sc().statusTracker().getExecutorInfos())

# The file that the first task needs is lost: its stage is retried beside its second task.
rows = context.parallelize(range(2), 2).map(lambda n: (n, n)).partitionBy(2, lambda key: key)
rows.count()
next(folder.rglob("shuffle_0_0_0.data")).unlink()
def second_is_held(partition, rows):
    rows = list(rows)
    if partition == 1:
        attempt = int((folder / "attempt-0.began").exists())
        hold(f"attempt-{attempt}")
        assert attempt == 1
    return rows
job = run(lambda: rows.mapPartitionsWithIndex(second_is_held).collect())
until(lambda: (folder / "attempt-0.began").exists() and (folder / "attempt-1.began").exists())
# The first task runs again too, and may not have finished yet.
until(lambda: counts().tasks_active == 1)
beside = counts().tasks_active
(folder / "attempt-0").touch()
until(lambda: tasks_run() == 1)
alone = counts().tasks_active
(folder / "attempt-1").touch()
job.join()
say(f"retried: {beside} {alone} {counts().tasks_active}")

def cancelled():
    context.setJobGroup("held", "", interruptOnCancel=False)
    context.parallelize(range(2), 2).foreach(lambda number: hold("never"))
job = run(cancelled)
until(lambda: counts().tasks_active == 2)
context.cancelJobGroup("held")
until(lambda: not counts().jobs_active)
left = counts().tasks_active
until(lambda: not tasks_run())
say(f"cancelled: {left} {counts().tasks_active}")
"""


@pytest.mark.thorough
def test_tasks_that_outlive_their_attempt_or_their_job_are_not_active(tmp_path):
    with Driver(OUTLIVED, tmp_path, arguments=[tmp_path], SPARK_LOCAL_DIRS=str(tmp_path)) as driver:
        assert driver.line("retried: ") == "retried: 1 1 0"
        assert driver.line("cancelled: ") == "cancelled: 0 0"


# -- the probe --------------------------------------------------------------------------------


def test_probe_reads_details_that_events_do_not_contain(spark, watch, tmp_path):
    sidecar = watch()
    start(rate(spark), "known", trigger="300 milliseconds", checkpoint=tmp_path / "cp")
    commits(sidecar, "known", batches=2)

    def known():
        return sidecar._runtime.evaluated.snapshot.labels()["known"]

    until(
        lambda: known().run.probed.committed_offsets.startswith("{RateStream"), "offsets are seen"
    )
    query = known()
    assert str(query.run.facts.trigger) == "ProcessingTime(0.3 s)"
    assert query.run.facts.checkpoint.endswith(str(tmp_path / "cp"))
    assert query.run.facts.sink == "NoopTable"
    assert query.run.facts.session == query.run.start.session == spark._jsparkSession.sessionUUID()
