"""On real Spark: how events reach us, and that Spark's threads pay next to nothing for it."""

from __future__ import annotations

import threading

import pytest
from py4j.clientserver import ClientServerConnection
from support.queries import Trap, commits, rate, shown, start, until

from querypulse.listener import health_listener
from querypulse.sidecar import Settings, Sidecar, attach

pytestmark = pytest.mark.spark


def monitor(sidecar):
    return sidecar.snapshot().monitor


def sidecar_listeners(spark, sidecar):
    listeners = spark.streams._jsqm.listListeners()
    return sum(each.equals(sidecar.listener.wrapper) for each in listeners)


def test_no_py4j_command_is_sent_on_sparks_threads(spark, watch, monkeypatch):
    """The callback appends the event's handle; another thread asks it for its JSON."""
    callbacks, senders = set(), set()
    submit, send = health_listener.HealthListener.submit, ClientServerConnection.send_command

    def submitted(self, kind, payload):
        callbacks.add(threading.get_ident())
        submit(self, kind, payload)

    def sent(self, command):
        senders.add(threading.get_ident())
        return send(self, command)

    monkeypatch.setattr(health_listener.HealthListener, "submit", submitted)
    monkeypatch.setattr(ClientServerConnection, "send_command", sent)
    sidecar = watch()
    start(rate(spark), "quiet")
    commits(sidecar, "quiet", batches=3)

    assert monitor(sidecar).listener_path == "raw"
    assert callbacks
    assert senders
    assert not callbacks & senders


def test_every_kind_of_event_is_heard_and_none_is_lost(spark, watch, tmp_path):
    sidecar = watch()
    query = start(rate(spark), "heard")
    commits(sidecar, "heard", batches=3)
    query.stop()
    until(lambda: monitor(sidecar).events.get("terminated"), "its end is heard")
    start(spark.readStream.schema("a long").json(str(tmp_path)), "idle")
    until(lambda: monitor(sidecar).events.get("idle"), "idleness is heard")

    assert monitor(sidecar).events["started"] == 2
    assert sidecar_listeners(spark, sidecar) == 1
    assert not any(monitor(sidecar).events_dropped.values())
    assert not monitor(sidecar).internal_errors


@pytest.mark.contains_errors
def test_without_private_api_pysparks_own_path_serves(spark, watch, pages, monkeypatch):
    monkeypatch.setattr(health_listener, "_WRAPPER", "no.such.Wrapper")
    sidecar = watch()
    trap = Trap()
    start(rate(spark), "stock", trap)
    commits(sidecar, "stock")
    until(lambda: monitor(sidecar).events.get("progress"), "events are heard")
    trap.die.set()
    pages.wait_for("QueryFailed", "stock")

    assert monitor(sidecar).listener_path == "stock"
    until(lambda: monitor(sidecar).events.get("terminated"), "its end is heard")
    assert monitor(sidecar).internal_errors == {"raw_listener": 1}


def test_a_listener_that_spark_dropped_is_registered_again(spark, watch):
    sidecar = watch()
    spark.streams._jsqm.removeListener(sidecar.listener.wrapper)

    until(lambda: monitor(sidecar).reregistrations == 1, "it is registered again")

    before = monitor(sidecar).events.get("progress", 0)
    start(rate(spark), "heard again")
    until(lambda: monitor(sidecar).events.get("progress", 0) > before, "events are heard again")
    assert monitor(sidecar).listener_registered


def test_a_listener_that_the_user_took_out_stays_out(spark, watch):
    sidecar = watch()
    spark.streams.removeListener(sidecar.listener)

    until(lambda: monitor(sidecar).listener_registered is False, "its absence is seen")

    assert monitor(sidecar).reregistrations == 0
    start(rate(spark), "watched by the probe alone")
    until(
        lambda: (q := shown(sidecar, "watched by the probe alone")) and q.last_commit_batch,
        "it commits",
    )
    assert monitor(sidecar).events.get("started", 0) == 0


def test_queries_of_another_session_are_heard_once_they_are_met(spark, watch):
    sidecar = watch()
    start(rate(spark.newSession()), "elsewhere")

    until(lambda: monitor(sidecar).events.get("progress"), "its events are heard")

    assert shown(sidecar, "elsewhere").state == "running"


def test_a_query_started_under_a_job_tag_is_heard(spark, watch):
    """PySpark 4.1 to 4.3 loses the started event there: its own conversion fails."""
    sidecar = watch()
    spark.sparkContext.addJobTag("nightly")
    try:
        start(rate(spark), "tagged")
        until(lambda: monitor(sidecar).events.get("started") == 1, "its start is heard")
    finally:
        spark.sparkContext.removeJobTag("nightly")


def test_the_probe_knows_what_events_do_not_tell(spark, watch, tmp_path):
    sidecar = watch()
    start(rate(spark), "known", trigger="300 milliseconds", checkpoint=tmp_path / "cp")
    commits(sidecar, "known", batches=2)

    def known():
        return sidecar._parts.judged.snapshot.labels()["known"]

    until(lambda: known().probed.committed_offsets.startswith("{RateStream"), "offsets are seen")
    query = known()
    assert str(query.facts.trigger) == "ProcessingTime(0.3 s)"
    assert query.facts.checkpoint.endswith(str(tmp_path / "cp"))
    assert query.facts.sink == "NoopTable"


def test_spark_tells_every_detail_the_probe_asks_for(spark, watch, pages, caplog):
    sidecar = watch(stall_floor_seconds=4)
    trap = Trap()
    trap.work = lambda batch: batch.count()
    start(rate(spark), "asked", trap)
    commits(sidecar, "asked")
    trap.hold.set()
    pages.wait_for("CommitStalled", "asked")
    trap.free.set()
    trap.die.set()
    trap.hold.clear()
    pages.wait_for("QueryFailed", "asked")

    assert [record for record in caplog.records if "does not tell" in record.message] == []


def test_attach_twice_gives_the_same_sidecar(spark, watch):
    assert watch() is attach(spark)


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


def test_wired_by_hand_it_watches_from_add_listener_on(spark, pages):
    sidecar = Sidecar(Settings(http_port=0, webhook_url=pages.url))
    assert sidecar.url is None
    with pytest.raises(RuntimeError, match="watches nothing yet"):
        sidecar.snapshot()
    spark.streams.addListener(sidecar.listener)
    query = start(rate(spark), "by hand", trap := Trap())
    try:
        assert attach(spark) is sidecar
        commits(sidecar, "by hand")
        trap.die.set()
        pages.wait_for("QueryFailed", "by hand")
    finally:
        query.stop()
        sidecar.close()


def test_closing_leaves_no_thread_and_no_listener_in_spark(spark, watch):
    sidecar = watch()
    start(rate(spark), "left behind")
    commits(sidecar, "left behind")
    sidecar.close()

    assert [t.name for t in threading.enumerate() if t.name.startswith("querypulse")] == []
    assert sidecar_listeners(spark, sidecar) == 0
