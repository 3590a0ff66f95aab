"""On real Spark: how events reach us, by each way, and that Spark's threads run nothing of ours."""

from __future__ import annotations

import os
import threading

import pytest
from py4j.clientserver import ClientServerConnection
from py4j.protocol import Py4JError
from support.queries import Boom, Trap, commits, rate, shown, start, until

from querypulse.listener import driver_class, event_paths, health_listener
from querypulse.sidecar import QueryFailure, Settings, SettingsError, Sidecar, attach

pytestmark = pytest.mark.spark

PATHS = ["bus_queue", "session_listeners", "python_proxy", "python_callbacks"]


def refuse_bus(monkeypatch):
    def refused(*_, **__):
        raise Py4JError("addToQueue is not on the allow-list")

    monkeypatch.setattr(event_paths.BusPath, "listen", refused)


def refuse_janino(monkeypatch):
    monkeypatch.setattr(driver_class, "COMPILER", "no.such.Compiler")


def refuse_proxy(monkeypatch):
    refuse_janino(monkeypatch)
    monkeypatch.setattr(health_listener, "_WRAPPER", "no.such.Wrapper")


REFUSALS = {
    "bus_queue": lambda _: None,
    "session_listeners": refuse_bus,
    "python_proxy": refuse_janino,
    "python_callbacks": refuse_proxy,
}


@pytest.fixture(params=PATHS)
def path(request, monkeypatch, no_contained_error):
    """Each way, reached by refusing all better ones; a refused proxy is a contained error."""
    REFUSALS[request.param](monkeypatch)
    yield request.param
    expected = ["python_proxy"] if request.param == "python_callbacks" else []
    assert [where for where, _ in no_contained_error] == expected
    no_contained_error.clear()


def monitor(sidecar):
    return sidecar.snapshot().monitor


def events(sidecar, kind):
    return monitor(sidecar).events.get(kind, 0)


def our_session_listeners(spark, sidecar):
    ours = sidecar._runtime.path.java_listener
    return sum(each.equals(ours) for each in spark.streams._jsqm.listListeners())


def bus_listeners(spark):
    bus = spark._jsc.sc().listenerBus().listeners()
    return [each for each in bus if each.getClass().getName() == "QuerypulseListener"]


# -- each way ---------------------------------------------------------------------------------


def test_every_way_delivers_each_event_once_and_is_shown(path, spark, watch, pages, tmp_path):
    sidecar = watch()
    assert monitor(sidecar).listener_path == path
    query = start(rate(spark), "stopped")
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
    assert not any(monitor(sidecar).events_dropped.values())
    assert monitor(sidecar).listener_registered


def test_every_way_counts_an_event_once_however_often_the_listener_is_added(path, spark, watch):
    sidecar = watch()
    other = spark.newSession()
    for session in (spark, other, other):
        session.streams.addListener(sidecar.listener)
    query = start(rate(other), "once")
    commits(sidecar, "once", batches=2)
    query.stop()
    until(lambda: events(sidecar, "terminated"), "its end arrives")

    assert (events(sidecar, "started"), events(sidecar, "terminated")) == (1, 1)
    for session in (spark, other, other):
        session.streams.removeListener(sidecar.listener)


def test_every_way_sees_the_queries_of_another_session(path, spark, watch):
    sidecar = watch()
    start(rate(spark.newSession()), "elsewhere")

    until(lambda: events(sidecar, "progress"), "its events arrive")
    until(lambda: shown(sidecar, "elsewhere").state == "running", "it runs")


def test_every_way_leaves_no_thread_and_no_listener_behind(path, spark, watch):
    sidecar = watch()
    start(rate(spark), "left behind")
    commits(sidecar, "left behind")
    ours = sidecar._runtime.path.java_listener
    sidecar.close()

    assert [t.name for t in threading.enumerate() if t.name.startswith("querypulse")] == []
    assert not any(each.equals(ours) for each in spark.streams._jsqm.listListeners())
    assert bus_listeners(spark) == []
    assert sidecar._runtime.path.java_listener is None


@pytest.mark.parametrize("way", ["session_listeners", "python_proxy"])
def test_a_session_listener_that_spark_dropped_is_registered_again(way, spark, watch, monkeypatch):
    REFUSALS[way](monkeypatch)
    sidecar = watch()
    until(lambda: monitor(sidecar).listener_registered, "it is registered")
    spark.streams._jsqm.removeListener(sidecar._runtime.path.java_listener)

    until(lambda: monitor(sidecar).reregistrations == 1, "it is registered again")
    start(rate(spark), "received again")
    until(lambda: events(sidecar, "progress"), "events arrive again")


@pytest.mark.parametrize("way", ["session_listeners", "python_proxy"])
def test_a_session_listener_that_the_user_removed_stays_out(way, spark, watch, monkeypatch):
    REFUSALS[way](monkeypatch)
    sidecar = watch()
    until(lambda: monitor(sidecar).listener_registered, "it is registered")
    spark.streams.removeListener(sidecar.listener)

    until(lambda: monitor(sidecar).listener_registered is False, "its absence is seen")
    assert monitor(sidecar).reregistrations == 0
    start(rate(spark), "probed")
    until(lambda: (q := shown(sidecar, "probed")) and q.last_commit_batch, "the probe sees it")


# -- the bus queue ----------------------------------------------------------------------------


def test_nothing_of_ours_runs_in_python_on_sparks_threads(spark, watch, monkeypatch):
    """Py4J's callback threads run no line of ours, and send nothing for us."""
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


def test_a_bus_listener_that_spark_dropped_is_registered_again(spark, watch):
    sidecar = watch()
    (ours,) = bus_listeners(spark)
    spark._jsc.sc().listenerBus().removeListener(ours)

    until(lambda: monitor(sidecar).reregistrations == 1, "it is registered again")
    assert len(bus_listeners(spark)) == 1
    start(rate(spark), "received again")
    until(lambda: events(sidecar, "progress"), "events arrive again")
    assert monitor(sidecar).listener_registered


def test_queries_of_new_sessions_that_fail_within_milliseconds_are_all_reported(
    spark, watch, pages
):
    """Their first batch fails, long before the probe's next poll."""
    watch(probe_interval_seconds=10, group_min_queries=100)

    def fail(batch, batch_id):
        raise Boom("at once")

    for number in range(8):
        with pytest.raises(Exception, match="at once"):
            start(rate(spark.newSession()), f"newborn {number}", fail).awaitTermination()
    for number in range(8):
        pages.wait_for("StreamingQueryFailed", f"newborn {number}", timeout=5)


def test_a_query_that_completes_between_two_polls_is_no_query_that_stopped(spark, watch, tmp_path):
    """No event names the trigger, and only the trigger says that it should end."""
    sidecar = watch(probe_interval_seconds=10)
    writer = rate(spark).writeStream.queryName("short").format("noop")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    until(lambda: events(sidecar, "terminated"), "its end arrives")

    until(lambda: shown(sidecar, "short").state == "completed", "it is known as completed")


def test_a_query_started_under_a_job_tag_is_received(spark, watch):
    """PySpark 4.1 to 4.3 loses the started event there: its own conversion fails."""
    if not hasattr(spark.sparkContext, "addJobTag"):
        pytest.fail("every supported Spark has job tags")
    sidecar = watch()
    spark.sparkContext.addJobTag("nightly")
    try:
        start(rate(spark), "tagged")
        until(lambda: events(sidecar, "started") == 1, "its start arrives")
    finally:
        spark.sparkContext.removeJobTag("nightly")


def test_our_java_classes_keep_to_java_8(spark):
    compiler_class = driver_class.COMPILER
    jvm = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for names in (("EventQueue", "JobCounter", "Watchers"), ("LivingRuns",)):
        compiler = loader.loadClass(compiler_class).newInstance()
        compiler.setParentClassLoader(loader)
        compiler.setSourceVersion(8)
        compiler.setTargetVersion(8)
        compiler.cook(driver_class.source_of(names, "java8"))


# -- the probe --------------------------------------------------------------------------------


def test_the_probe_knows_what_events_do_not_say(spark, watch, tmp_path):
    sidecar = watch()
    start(rate(spark), "known", trigger="300 milliseconds", checkpoint=tmp_path / "cp")
    commits(sidecar, "known", batches=2)

    def known():
        return sidecar._runtime.evaluated.snapshot.labels()["known"]

    until(lambda: known().probed.committed_offsets.startswith("{RateStream"), "offsets are seen")
    query = known()
    assert str(query.facts.trigger) == "ProcessingTime(0.3 s)"
    assert query.facts.checkpoint.endswith(str(tmp_path / "cp"))
    assert query.facts.sink == "NoopTable"
    assert query.facts.session == query.start.session == spark._jsparkSession.sessionUUID()


def test_spark_answers_every_detail_the_probe_asks_for(spark, watch, pages, caplog):
    sidecar = watch(stall_floor_seconds=4)
    trap = Trap()
    trap.work = lambda batch: batch.count()
    start(rate(spark), "asked", trap)
    commits(sidecar, "asked")
    trap.hold.set()
    pages.wait_for("StreamingQueryStalled", "asked")
    trap.free.set()
    trap.die.set()
    trap.hold.clear()
    pages.wait_for("StreamingQueryFailed", "asked")

    assert [record for record in caplog.records if "refuse" in record.message] == []
    assert [record for record in caplog.records if "does not" in record.message] == []


# -- attach -----------------------------------------------------------------------------------


def test_attach_twice_gives_the_same_sidecar(spark, watch):
    assert watch() is attach(spark) is attach(spark, http_port=0)


def test_attach_with_other_settings_is_an_error_that_names_them(spark, watch):
    watch(stall_floor_seconds=30)

    with pytest.raises(SettingsError, match="'stall_floor_seconds'"):
        attach(spark, stall_floor_seconds=31, http_port=0)


def test_threads_that_attach_at_once_share_one_sidecar(spark, watch):
    watch().close()
    made = []
    threads = [
        threading.Thread(target=lambda: made.append(attach(spark, http_port=-1))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        assert len(made) == 4
        assert len(set(map(id, made))) == 1
        assert len(bus_listeners(spark)) == 1
    finally:
        made[0].close()


@pytest.mark.contains_errors
@pytest.mark.parametrize("broken", ["SparkProbe", "SparkStorage"])
def test_an_error_of_ours_at_attach_ends_no_job_and_leaves_nothing(broken, spark, monkeypatch):
    def explode(*_):
        raise TypeError("a bug of ours")

    monkeypatch.setattr(f"querypulse.sidecar.observers.{broken}", explode)
    sidecar = attach(spark, http_port=-1)

    assert sidecar.closed
    assert bus_listeners(spark) == []
    assert [t.name for t in threading.enumerate() if t.name.startswith("querypulse")] == []
    spark.streams.resetTerminated()
    query = start(rate(spark), "unwatched", trap := Trap())
    trap.die.set()
    with pytest.raises(QueryFailure, match="Boom"):
        sidecar.await_any_failure(30)
    assert not query.isActive
    spark.streams.resetTerminated()


def test_settings_of_the_spark_conf_are_taken_and_others_left_alone(spark, watch):
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set("spark.querypulse.app_name", "orders").set("spark.querypulses.app_name", "not ours")
    try:
        assert watch().snapshot().app == "orders"
    finally:
        conf.remove("spark.querypulse.app_name").remove("spark.querypulses.app_name")


def test_after_close_attach_gives_a_new_one(spark, watch):
    first = watch()
    first.close()

    assert watch() is not first


def test_added_by_hand_it_watches_from_then_on_with_the_settings_of_all_sources(
    path, spark, pages, monkeypatch
):
    monkeypatch.setitem(os.environ, "QUERYPULSE_WEBHOOK_URL", pages.url)
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set("spark.querypulse.app_name", "orders")
    try:
        sidecar = Sidecar(http_port=0)
    finally:
        conf.remove("spark.querypulse.app_name")
    assert sidecar.url is None
    with pytest.raises(RuntimeError, match="has not started"):
        sidecar.snapshot()
    spark.streams.addListener(sidecar.listener)
    query = start(rate(spark), "by hand", trap := Trap())
    try:
        assert attach(spark) is sidecar
        assert sidecar.snapshot().app == "orders"
        assert our_session_listeners(spark, sidecar) == 1
        commits(sidecar, "by hand")
        trap.die.set()
        pages.wait_for("StreamingQueryFailed", "by hand")
    finally:
        query.stop()
        spark.streams.removeListener(sidecar.listener)
        sidecar.close()


def test_settings_given_as_a_record_are_taken_as_they_are(spark, pages, monkeypatch):
    monkeypatch.setitem(os.environ, "QUERYPULSE_APP_NAME", "not this one")
    sidecar = Sidecar(Settings(http_port=0, app_name="this one"))
    spark.streams.addListener(sidecar.listener)
    try:
        assert sidecar.snapshot().app == "this one"
    finally:
        spark.streams.removeListener(sidecar.listener)
        sidecar.close()
