"""A real Spark Connect server on loopback, watched from its client. The tests share the server."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from support.connect_server import IS_OUTSIDE, ConnectServer, CuttingProxy
from support.driver import Driver
from support.queries import SPARK_PATIENCE_SECONDS, until
from support.spark_harness import JobListener

from querypulse.listener.connect.client import ConnectClient
from querypulse.recording.lines import decode
from querypulse.recording.timeline import timeline_of
from querypulse.sidecar import QueryFailure, SettingsError, Sidecar, attach

pytestmark = [pytest.mark.spark, pytest.mark.every_spark, pytest.mark.connect]
from_4_on = pytest.mark.skipif(IS_OUTSIDE, reason="Spark 3.5 sends Connect clients no events")
knows_ended_sessions = pytest.mark.skipif(
    IS_OUTSIDE, reason="Spark 3.5 makes a new session in the place of one that has ended"
)
SESSIONS = []
"""All sessions of the process. PySpark shuts the pool of all sessions down as it deletes one, and
waits for ever where the garbage collector does that while another session submits to the pool."""

EXITS = """
import os, sys, time
from pyspark.sql import SparkSession
from querypulse import attach
spark = SparkSession.builder.remote(os.environ["REMOTE"]).getOrCreate()
sidecar = attach(spark, http_port=-1, webhook_url=os.environ["PAGES"], app_name="exits")
stream = spark.readStream.format("rate").load().writeStream.format("noop")
stream.queryName("exits").trigger(processingTime="1 second").start()
while not any(query.last_commit_batch is not None for query in sidecar.snapshot().queries):
    time.sleep(0.05)
print("ready", flush=True)
sys.exit(7)
"""


def start(spark, name, fails_at=None, **trigger):
    from pyspark.sql.connect import functions as F

    rows = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    if fails_at is not None:
        boom = F.raise_error(F.lit("no such order"))
        rows = rows.withColumn("x", F.when(F.col("value") >= fails_at, boom).otherwise(F.lit(None)))
    trigger = trigger or {"processingTime": "500 milliseconds"}
    return rows.writeStream.format("noop").queryName(name).trigger(**trigger).start()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = ConnectServer(tmp_path_factory.mktemp("connect"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def connect(server, pages):
    """Opens sessions and attaches to them; closes all afterwards."""
    from pyspark.sql.connect.session import SparkSession

    opened = []

    def session(port=None, watch=attach, **settings):
        remote = f"sc://127.0.0.1:{port or server.port}"
        spark = SparkSession.Builder().remote(remote).create()
        SESSIONS.append(spark)
        given = {"http_port": -1, "webhook_url": pages.url, "app_name": "connect", **settings}
        sidecar = watch(spark, **{"resolve_after_seconds": 1, **given})
        opened.append((spark, sidecar))
        return spark, sidecar

    yield session
    for spark, sidecar in opened:
        sidecar.close()
        # A dead server would keep ``stop()`` waiting for minutes.
        spark.client.close()


def committed(sidecar, *names, beyond=-1):
    def done():
        batches = {query.name: query.last_commit_batch for query in sidecar.snapshot().queries}
        return all(batches.get(name) is not None and batches[name] > beyond for name in names)

    until(done, f"{names} commit")
    return {query.name: query.last_commit_batch for query in sidecar.snapshot().queries}


def monitor(sidecar):
    return sidecar.snapshot().monitor


def test_failed_query_pages_is_recorded_and_ends_the_waiting_client(connect, pages, tmp_path):
    spark, sidecar = connect(incidents_dir=str(tmp_path))
    start(spark, "silver")
    committed(sidecar, "silver")
    start(spark, "bronze", fails_at=8)

    with pytest.raises(QueryFailure, match="no such order") as failure:
        sidecar.await_any_failure(SPARK_PATIENCE_SECONDS)

    assert failure.value.query == "bronze"
    page = pages.wait_for("StreamingQueryFailed", "bronze")
    assert "no such order" in page.annotations["reason"]
    assert {query for _, _, query in pages.reported} == {"bronze"}
    recording = Path(page.annotations["recording"])
    until(recording.exists, "it is recorded in a local folder")
    answers = timeline_of([decode(recording.read_bytes(), recording.name)]).answers
    assert "no such order" in answers["first"]
    assert monitor(sidecar).listener_path == "connect_polling"
    assert any("other sessions" in what for what in monitor(sidecar).missing)


def test_finished_query_is_completed_and_waiting_ends(connect, pages):
    spark, sidecar = connect()
    start(spark, "nightly", availableNow=True)

    sidecar.await_any_failure(SPARK_PATIENCE_SECONDS)

    assert [(query.name, query.state) for query in sidecar.snapshot().queries] == [
        ("nightly", "completed")
    ]
    assert pages.reported == []


def test_batches_between_two_polls_are_counted(connect):
    spark, sidecar = connect()
    silver = start(spark, "silver", processingTime="100 milliseconds")
    committed(sidecar, "silver", beyond=12)
    silver.stop()

    def each_is_an_event():
        (query,) = sidecar.snapshot().queries
        return query.last_commit_batch + 1 == monitor(sidecar).events["progress"]

    until(each_is_an_event, "each batch is an event")


@from_4_on
def test_sidecar_that_is_added_by_hand_leaves_the_event_stream_to_the_job(connect):
    def add(spark, **settings):
        sidecar = Sidecar(**settings)
        spark.streams.addListener(sidecar.listener)
        return sidecar

    spark, sidecar = connect(watch=add)
    silver = start(spark, "silver")
    committed(sidecar, "silver")
    listener = JobListener()
    spark.streams.addListener(listener)
    until(lambda: listener.batches > 1, "the job's listener receives batches")
    # While events arrive, PySpark's ``removeListener`` can wait for ever (SPARK-59623).
    silver.stop()
    until(lambda: listener.ends, "the last event has arrived")
    spark.streams.removeListener(listener)
    spark.streams.removeListener(sidecar.listener)


def test_cut_connection_heals_without_an_alert_and_one_that_is_refused_with_one(
    server, connect, pages
):
    proxy = CuttingProxy(server.port)
    spark, sidecar = connect(proxy.port)
    start(spark, "silver")
    last = committed(sidecar, "silver")["silver"]

    proxy.cut()
    until(lambda: proxy.turned_away > 1, "the client tries again")
    proxy.restore()

    last = committed(sidecar, "silver", beyond=last + 3)["silver"]
    assert pages.reported == []

    proxy.refuse()
    pages.wait_for("StreamingDriverDown", "*")
    proxy.restore()
    pages.wait_for("StreamingDriverDown", "*", status="resolved")
    committed(sidecar, "silver", beyond=last + 3)
    assert {name for _, name, _ in pages.reported} == {"StreamingDriverDown"}
    proxy.refuse()


# -- the session ends ---------------------------------------------------------------------------


def release_elsewhere(spark):
    """Another client ends the session, as an administrator may."""
    import pyspark.sql.connect.proto as pb2

    with closing(ConnectClient(spark)) as other:
        other._server_session = ""  # This request has no such field.
        request = other._identified(pb2.ReleaseSessionRequest())
        other._unary(other._stub.ReleaseSession, request)


def test_spool_at_a_uri_is_an_error_because_the_client_has_no_jvm(connect):
    with pytest.raises(SettingsError, match=r"'spool_dir': s3a://team/x.*: give a local path"):
        connect(spool_dir="s3a://team/x")


@knows_ended_sessions
def test_session_that_expired_fails_its_query_and_a_new_session_resolves_it(
    server, connect, pages, tmp_path
):
    proxy, spool = CuttingProxy(server.port), {"spool_dir": str(tmp_path)}
    spark, sidecar = connect(proxy.port, **spool)
    start(spark, "silver")
    committed(sidecar, "silver")

    proxy.cut()
    until(lambda: server.has_closed(spark.session_id), "the session has expired")
    assert pages.reported == []
    proxy.restore()
    with pytest.raises(QueryFailure, match="has closed the session") as failure:
        sidecar.await_any_failure(SPARK_PATIENCE_SECONDS)

    assert failure.value.query == "silver"
    page = pages.wait_for("StreamingQueryFailed", "silver")
    assert "CONNECT_SESSION_ENDED" in page.annotations["reason"]
    assert "spark.stop(), create a session" in page.annotations["next_steps"]
    assert not sidecar.closed

    spark, _ = connect(**spool)
    assert sidecar.closed
    start(spark, "silver")
    pages.wait_for("StreamingQueryFailed", "silver", status="resolved")
    assert {name for _, name, _ in pages.reported} == {"StreamingQueryFailed"}


@knows_ended_sessions
def test_session_released_elsewhere_fails_the_queries_that_should_run_and_no_other_session(
    connect, pages
):
    spark, sidecar = connect()
    other, beside = connect(app_name="beside")
    start(spark, "nightly", availableNow=True).awaitTermination()
    start(other, "beside")
    for name in ("silver", "bronze", "gold"):
        start(spark, name)
    committed(sidecar, "silver", "bronze", "gold")
    sidecar.expect_stop("gold")

    release_elsewhere(spark)
    with pytest.raises(QueryFailure, match="or was released elsewhere"):
        sidecar.await_any_failure(SPARK_PATIENCE_SECONDS)

    page = pages.wait_for("StreamingQueryFailed", "*")
    assert page.annotations["reason"].endswith(": bronze, silver")
    states = {query.name: query.state for query in sidecar.snapshot().queries}
    assert (states["nightly"], states["gold"]) == ("completed", "stopped")
    committed(beside, "beside", beyond=committed(beside, "beside")["beside"])
    assert {query for _, _, query in pages.reported} == {"*"}


@knows_ended_sessions
def test_session_released_elsewhere_after_its_queries_were_done_pages_nobody(connect, pages):
    spark, sidecar = connect()
    start(spark, "nightly", availableNow=True).awaitTermination()
    silver = start(spark, "silver")
    committed(sidecar, "silver")
    silver.stop()

    release_elsewhere(spark)
    until(sidecar._session_has_ended, "the end of the session is known")
    sidecar.await_any_failure(SPARK_PATIENCE_SECONDS)

    states = {query.name: query.state for query in sidecar.snapshot().queries}
    assert states == {"nightly": "completed", "silver": "stopped"}
    assert pages.reported == []


def test_session_that_the_job_stops_pages_nobody_and_ends_the_wait(connect, pages, caplog):
    spark, sidecar = connect()
    start(spark, "silver")
    committed(sidecar, "silver")

    spark.stop()
    sidecar.await_any_failure(SPARK_PATIENCE_SECONDS)

    until(lambda: sidecar.closed, "the sidecar closes")
    assert "has closed the session" not in caplog.text
    assert pages.reported == []


@knows_ended_sessions
def test_job_that_stops_as_a_new_server_has_lost_its_session_has_a_failed_query(
    server, connect, pages
):
    """PySpark closes its client then, too, and the job's cleanup calls ``spark.stop()``."""
    from pyspark.errors.exceptions.connect import SparkConnectException

    proxy = CuttingProxy(server.port)
    spark, sidecar = connect(proxy.port)
    silver = start(spark, "silver")
    committed(sidecar, "silver")

    proxy.cut()
    server.kill()
    server.start()
    proxy.restore()
    with pytest.raises(SparkConnectException):
        silver.awaitTermination()
    spark.stop()

    with pytest.raises(QueryFailure, match="has lost the session"):
        sidecar.await_any_failure(SPARK_PATIENCE_SECONDS)
    pages.wait_for("StreamingQueryFailed", "silver")
    assert {name for _, name, _ in pages.reported} == {"StreamingQueryFailed"}


def test_client_keeps_its_exit_code_and_prints_nothing(server, pages, tmp_path):
    remote = f"sc://127.0.0.1:{server.port}"
    with Driver(EXITS, tmp_path, header="", REMOTE=remote, PAGES=pages.url) as client:
        client.wait_for_line("ready")

        assert client.wait(SPARK_PATIENCE_SECONDS) == 7
        assert client.lines == ["ready"]
        assert client.errors == ""


@from_4_on
def test_killed_server_is_a_driver_that_is_down_and_a_new_server_has_lost_the_session(
    server, connect, pages, caplog
):
    spark, sidecar = connect()
    start(spark, "silver")
    committed(sidecar, "silver")

    server.kill()
    with pytest.raises(QueryFailure) as failure:
        sidecar.await_any_failure(SPARK_PATIENCE_SECONDS)

    assert failure.value.query == "*"
    assert "silver" in pages.wait_for("StreamingDriverDown", "*").annotations["reason"]
    server.start()
    until(lambda: "the Spark Connect server has lost the session" in caplog.text, "it is said")
    assert {name for _, name, _ in pages.reported} == {"StreamingDriverDown"}


@pytest.mark.skipif(
    not IS_OUTSIDE, reason="from Spark 4.0 on, a new server refuses the old session"
)
def test_queries_of_a_killed_server_have_failed_when_a_new_one_continues_the_session(
    server, connect, pages
):
    spark, sidecar = connect()
    start(spark, "silver")
    committed(sidecar, "silver")

    server.kill()
    pages.wait_for("StreamingDriverDown", "*")
    server.start()

    page = pages.wait_for("StreamingQueryFailed", "silver")
    assert "no longer knows the query" in page.annotations["reason"]
    pages.wait_for("StreamingDriverDown", "*", status="resolved")
    start(spark, "silver")
    pages.wait_for("StreamingQueryFailed", "silver", status="resolved")
