"""A driver that serves Spark Connect sees the queries of all its clients as its own."""

from __future__ import annotations

import os
import signal
import time

import pytest
from support.connect_driver import SERVES, ConnectDriver
from support.connect_server import IS_OUTSIDE
from support.driver import Driver
from support.queries import SPARK_PATIENCE_SECONDS, until

pytestmark = [pytest.mark.spark, pytest.mark.every_spark, pytest.mark.connect]
shows_ends = pytest.mark.skipif(IS_OUTSIDE, reason="Spark 3.5 does not show how a session ended")
STOPPED = "StreamingQueryStopped"


def start(spark, name, *, fails_at=None, sink=None, checkpoint=None):
    from pyspark.sql.connect import functions as F

    rows = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    if fails_at is not None:
        boom = F.raise_error(F.lit("no such order"))
        rows = rows.withColumn("x", F.when(F.col("value") >= fails_at, boom).otherwise(F.lit(None)))
    writer = rows.writeStream.queryName(name).trigger(processingTime="500 milliseconds")
    writer = writer.format("noop") if sink is None else writer.foreachBatch(sink)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.start()


@pytest.fixture(scope="module")
def all_pages():
    from support.pages import PageRecorder

    with PageRecorder() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def server(all_pages, tmp_path_factory):
    """Its first client comes as soon as the port is open."""
    server = ConnectDriver(tmp_path_factory.mktemp("served"), all_pages)
    server.start(has_early_client=True)
    yield server
    server.close()


def alerts(pages, query):
    return {name for _, name, of in pages.reported if of == query}


def gone(spark):
    """The client is gone, as if it was killed: it releases nothing."""
    spark.client.close()


def test_query_of_an_early_client_is_shown_as_it_is_and_its_failure_pages(server, all_pages):
    spark = server.session()
    start(spark, "silver")
    start(spark, "bronze", fails_at=3)

    page = all_pages.wait_for("StreamingQueryFailed", "bronze")
    server.wait_for_commits("silver", beyond=server.wait_for_commits("silver"))

    assert "no such order" in page.annotations["reason"]
    assert page.annotations["trigger"].startswith("ProcessingTime")
    assert server.query("silver")["state"] == "running"
    assert STOPPED not in alerts(all_pages, "silver")
    spark.stop()


@shows_ends
def test_client_that_leaves_stops_its_queries_as_planned_and_no_others(server, all_pages):
    spark, beside = server.session(), server.session("bob")
    start(spark, "leaves")
    start(beside, "stays")
    other = start(beside, "other")
    for name in ("leaves", "stays", "other"):
        server.wait_for_commits(name)

    spark.stop()
    server.wait_for("leaves", "stopped")
    other.stop()

    all_pages.wait_for(STOPPED, "other")
    assert alerts(all_pages, "leaves") == set()
    server.wait_for_commits("stays", beyond=server.wait_for_commits("stays"))
    beside.stop()


@shows_ends
def test_expired_session_is_named_and_another_session_starts_its_query_again(
    server, all_pages, tmp_path
):
    spark = server.session("carol")
    start(spark, "left alone", checkpoint=tmp_path)
    server.wait_for_commits("left alone")

    gone(spark)
    server.set_time_out("1s")
    (page,) = until(
        lambda: [page for page in all_pages.pages if "of carol" in page.annotations["reason"]],
        "its end is reported",
    )[:1]

    assert page.what[0] == STOPPED
    assert f"session {spark.session_id} of carol expired" in page.annotations["reason"]
    assert "awaitTermination()" in page.annotations["next_steps"]
    server.set_time_out("1h")
    last = server.query("left alone")["last_commit_batch"]
    again = server.session("carol")
    start(again, "left alone", checkpoint=tmp_path)
    all_pages.wait_for(*page.what, status="resolved")
    assert server.wait_for_commits("left alone", beyond=last) > last
    again.stop()


def begins(spark, name, sink):
    """Whether Spark's worker for ``foreachBatch`` came in time: Spark waits for 10 s, not longer."""
    from pyspark.errors import PySparkException

    try:
        start(spark, name, sink=sink)
    except PySparkException as error:
        if "worker failed to connect" not in str(error):
            raise
        return False
    return True


LATCH = "holds"


@pytest.mark.nightly
def test_batch_that_hangs_pages_with_its_stack(all_pages, tmp_path):
    latch = tmp_path / LATCH

    def hold(batch, batch_id, path=str(latch)):
        import os
        import time

        while os.path.exists(path):  # noqa: PTH110 - it is pickled for another process
            time.sleep(0.1)

    server = ConnectDriver(tmp_path, all_pages, stall_floor_seconds=10, start_grace_seconds=10)
    server.start()
    spark = server.session()
    try:
        ends_at = time.monotonic() + SPARK_PATIENCE_SECONDS
        while not begins(spark, "held", hold):
            if time.monotonic() > ends_at:
                pytest.skip("this machine starts no Python worker in the 10 s that Spark allows")
        server.wait_for_commits("held")
        latch.touch()
        page = all_pages.wait_for("StreamingQueryStalled", "held")
        assert "batch_hung" in page.annotations["reason"]
        assert "ForeachBatch" in page.annotations["stream_thread"]
        assert page.annotations["commit_log"]
        latch.unlink()
        all_pages.wait_for("StreamingQueryStalled", "held", status="resolved")
        spark.stop()
    finally:
        server.close()


CLOGS = """
jvm = spark.sparkContext._jvm
loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
compiler = loader.loadClass("org.codehaus.janino.SimpleCompiler").newInstance()
compiler.setParentClassLoader(loader)
compiler.cook('''
public class Clog extends org.apache.spark.scheduler.SparkListener {
  public void onOtherEvent(org.apache.spark.scheduler.SparkListenerEvent event) {
    try { Thread.sleep(3600000L); } catch (InterruptedException stopped) {}
  }
}
''')
clog = compiler.getClassLoader().loadClass("Clog").newInstance()
spark.sparkContext._jsc.sc().listenerBus().addToQueue(clog, "querypulse")
"""


@pytest.mark.nightly
def test_commits_and_failures_are_seen_where_the_listener_bus_is_clogged(all_pages, tmp_path):
    server = ConnectDriver(tmp_path, all_pages, script=CLOGS + SERVES)
    server.start(has_early_client=True)
    try:
        spark = server.session()
        start(spark, "unheard")
        server.wait_for_commits("unheard", beyond=server.wait_for_commits("unheard"))
        start(spark, "dies unheard", fails_at=3)
        all_pages.wait_for("StreamingQueryFailed", "dies unheard")
        assert "StreamingQueryFailed" not in alerts(all_pages, "unheard")
    finally:
        server.close()


@pytest.mark.nightly
def test_killed_server_is_a_driver_that_is_down(all_pages, tmp_path):
    server = ConnectDriver(tmp_path, all_pages)
    server.start()
    try:
        start(server.session(), "cut off")
        server.wait_for_commits("cut off")
        server.driver.signal_jvm(signal.SIGKILL)
        page = all_pages.wait_for("StreamingDriverDown", "*")
        assert "cut off" in page.annotations["reason"]
    finally:
        server.close()


KILLED = """
import os, sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(os.environ["REMOTE"]).getOrCreate()
stream = spark.readStream.format("rate").load().writeStream.format("noop")
query = stream.queryName("waits for it").trigger(processingTime="500 milliseconds").start()
print("ready", flush=True)
query.awaitTermination()
"""


@pytest.mark.nightly
@shows_ends
def test_query_of_a_killed_client_pages_once_its_session_expires(server, all_pages, tmp_path):
    remote = f"sc://127.0.0.1:{server.port}/;user_id=dave"
    with Driver(KILLED, tmp_path, header="", REMOTE=remote) as client:
        client.wait_for_line("ready")
        server.wait_for_commits("waits for it")
        os.kill(client.process.pid, signal.SIGKILL)
        client.wait()
        server.set_time_out("1s")
        until(
            lambda: [page for page in all_pages.pages if "of dave" in page.annotations["reason"]],
            "its end is reported",
        )
        server.set_time_out("1h")
