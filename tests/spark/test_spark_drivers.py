"""A whole driver ends, freezes or resumes: what pages and what does not."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import NamedTuple

import pytest
from support.driver import Driver
from support.http_double import reply
from support.pages import PageRecorder, ReceivedPage
from support.queries import until
from support.watching import is_seen, watching

pytestmark = pytest.mark.spark


def slow_reply(handler):
    """A slow answer."""
    handler.double.closing.wait(1.5)
    reply(200)(handler)


@pytest.mark.fault(
    "Ends and kills", "A failure right before `sys.exit`", "It is reported; the exit code is kept"
)
def test_failure_right_before_exit_pages_and_keeps_the_exit_code(pages, tmp_path):
    script = """
    sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"])
    die = threading.Event()
    def work(batch, batch_id):
        if die.is_set():
            raise ValueError("concurrent update")
    query = start("doomed", work)
    until_commits(sidecar, "doomed")
    die.set()
    while query.isActive:
        time.sleep(0.01)
    say("exiting")
    sys.exit(3)
    """
    with Driver(script, tmp_path, PAGES=pages.url) as driver:
        driver.wait_for_line("exiting")
        exiting_at = time.monotonic()

        assert driver.wait() == 3
        assert time.monotonic() - exiting_at < 10
        assert pages.reported == [("firing", "StreamingQueryFailed", "doomed")]


def test_failure_pages_to_a_slow_receiver_before_an_immediate_exit(pages, tmp_path):
    pages.otherwise = slow_reply
    script = """
    sidecar = attach(spark, http_port=-1, webhook_url=os.environ["PAGES"])
    def work(batch, batch_id):
        raise ValueError("concurrent update")
    query = start("doomed", work)
    try:
        query.awaitTermination()
    finally:
        spark.stop()
    """
    with Driver(script, tmp_path, PAGES=pages.url) as driver:
        assert driver.wait() == 1
        assert pages.reported == [("firing", "StreamingQueryFailed", "doomed")]


@pytest.mark.fault(
    "Ends and kills", "Exit while a receiver does not answer", "The delay is bounded"
)
def test_silent_receiver_delays_the_exit_for_a_bounded_time(tmp_path):
    script = """
    sidecar = attach(spark, http_port=-1, webhook_url=os.environ["PAGES"])
    query = start("doomed", lambda batch, batch_id: 1 / 0)
    while query.isActive:
        time.sleep(0.01)
    say("exiting")
    sys.exit(4)
    """
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Driver(script, tmp_path, PAGES=url) as driver:
            driver.wait_for_line("exiting")
            exiting_at = time.monotonic()

            assert driver.wait() == 4
            assert time.monotonic() - exiting_at < 10


@pytest.mark.fault(
    "Ends and kills",
    "SIGINT twice, the second while the exit waits for a receiver",
    "The process ends at once, by the signal; the watcher knows that a signal ended it",
)
def test_second_interrupt_ends_a_slow_exit(tmp_path, measured):
    script = """
    sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"])
    query = start("doomed", lambda batch, batch_id: 1 / 0)
    while query.isActive:
        time.sleep(0.01)
    say(sidecar.url)
    time.sleep(60)
    """
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Driver(script, tmp_path, PAGES=url) as driver:
            watched = until(lambda: driver.lines, "the driver prints its URL", 90)[0]
            with watching(watched, interval=0.5, gone_after=2.0) as reported:
                until(lambda: is_seen(reported, "driver"), "the driver is seen")
                os.kill(driver.process.pid, signal.SIGINT)
                time.sleep(2.5)
                assert driver.process.poll() is None
                os.kill(driver.process.pid, signal.SIGINT)
                interrupted_at = time.monotonic()
                code = driver.wait()
                seconds = time.monotonic() - interrupted_at
                time.sleep(4.0)

            measured(f"{seconds:.1f} s from the second signal to the end")
            (seen,) = reported.tracker.drivers.values()
            assert code == -signal.SIGINT
            assert seconds < 5
            assert seen.terminated
            assert reported.firing == {}


@pytest.mark.fault("Ends and kills", "`spark.stop()` while queries are busy", "Nobody is notified")
def test_spark_stop_with_busy_queries_does_not_page(pages, tmp_path):
    script = """
    from pyspark.sql import functions as F
    sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"], gone_grace_seconds=1, stall_floor_seconds=2)
    def busy(batch, batch_id):
        for _ in range(40):
            batch.count()
    start("busy", busy)
    start("calm")
    rate().writeStream.queryName("noop").format("noop").start()
    until_commits(sidecar, "calm", "noop")
    spark.stop()
    say("stopped")
    deadline = time.monotonic() + 10
    while not sidecar.closed and time.monotonic() < deadline:
        time.sleep(0.05)
    say(f"closed {sidecar.closed}")
    time.sleep(4)
    say(f"threads {[t.name for t in threading.enumerate() if t.name.startswith('querypulse')]}")
    """
    with Driver(script, tmp_path, PAGES=pages.url) as driver:
        assert driver.wait() == 0, driver.errors
        assert pages.pages == []
        assert driver.lines == ["stopped", "closed True", "threads []"]


@pytest.mark.fault(
    "Ends and kills",
    "`attach` on a new SparkContext after `spark.stop()`, in the same process and at the same port",
    "The new queries are watched, those of the first context cause no alert",
)
def test_new_context_after_a_stop_is_watched(pages, tmp_path):
    script = """
    first = attach(spark, http_port=0, webhook_url=os.environ["PAGES"], gone_grace_seconds=1)
    port = int(first.url.rpartition(":")[2])
    start("bronze"); start("silver")
    until_commits(first, "bronze", "silver")
    spark.stop()
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1").getOrCreate()
    )
    second = attach(spark, http_port=port, webhook_url=os.environ["PAGES"], gone_grace_seconds=1)
    die = threading.Event()
    def work(batch, batch_id):
        if die.is_set():
            raise ValueError("in the second context")
    query = start("silver", work)
    until_commits(second, "silver")
    time.sleep(3)
    say(f"first closed {first.closed}, same port {second.url.endswith(str(port))}")
    say(f"watched {[one.name for one in second.snapshot().queries]}, alerts {second.alerts()}")
    die.set()
    while query.isActive:
        time.sleep(0.05)
    second.flush()
    """
    with Driver(script, tmp_path, PAGES=pages.url) as driver:
        assert driver.wait(120) == 0, driver.errors
        assert driver.lines == [
            "first closed True, same port True",
            "watched ['silver'], alerts ()",
        ]
        assert pages.reported == [("firing", "StreamingQueryFailed", "silver")]


def test_spark_context_that_stops_by_itself_is_one_incident(pages, tmp_path):
    script = """
    sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"], gone_grace_seconds=2)
    start("a"); start("b")
    until_commits(sidecar, "a", "b")
    spark.sparkContext._jsc.sc().stop()
    say("dead")
    time.sleep(60)
    """
    with Driver(script, tmp_path, PAGES=pages.url) as driver:
        driver.wait_for_line("dead")
        page = pages.wait_for("StreamingQueryStopped", "*")
        # The page does not wait until every query is known to be gone.
        assert page.annotations["reason"].startswith("the SparkContext stopped by itself: ")
        assert [page.what for page in pages.pages] == [("StreamingQueryStopped", "*")]


class PausedDriver(NamedTuple):
    """A driver whose JVM pauses for 6 s and goes on, and then pauses until an alert fires."""

    lines: list[str]
    code: int
    after_pause: list[ReceivedPage]
    """The notifications until the second pause."""
    stalled: ReceivedPage
    resumed: ReceivedPage
    reported: list[tuple[str, str, str]]


@pytest.fixture(scope="module")
def paused(tmp_path_factory):
    script = """
    sidecar = attach(
        spark, http_port=0, webhook_url=os.environ["PAGES"], stall_floor_seconds=9, start_grace_seconds=9,
        resolve_after_seconds=1,
    )
    start("paused")
    until_commits(sidecar, "paused")
    say("committing")
    time.sleep(6)
    before = sidecar.snapshot().queries[0].last_commit_batch
    time.sleep(11)
    say(f"commits again {sidecar.snapshot().queries[0].last_commit_batch > before}, alerts {sidecar.alerts()}")
    say("pause again")
    while not sidecar.alerts():
        time.sleep(0.1)
    while sidecar.alerts():
        time.sleep(0.1)
    """
    with (
        PageRecorder() as pages,
        Driver(script, tmp_path_factory.mktemp("paused"), PAGES=pages.url) as driver,
    ):
        driver.wait_for_line("committing")
        driver.signal_jvm(signal.SIGSTOP)
        time.sleep(6)
        driver.signal_jvm(signal.SIGCONT)
        driver.wait_for_line("pause again")
        after_pause = list(pages.pages)
        driver.signal_jvm(signal.SIGSTOP)
        stalled = pages.wait_for("StreamingQueryStalled", "paused", timeout=40)
        driver.signal_jvm(signal.SIGCONT)
        resumed = pages.wait_for("StreamingQueryStalled", "paused", status="resolved")
        code = driver.wait()
        return PausedDriver(driver.lines, code, after_pause, stalled, resumed, pages.reported)


@pytest.mark.fault(
    "Time and pauses",
    "The JVM pauses for 6 s, as in a long garbage collection",
    "No alert during it or afterwards",
)
def test_jvm_that_resumes_after_a_pause_does_not_page(paused):
    assert paused.lines[1] == "commits again True, alerts ()"
    assert paused.after_pause == []


@pytest.mark.fault(
    "Time and pauses", "SIGSTOP of the JVM", "Evaluation goes on, and the silence is reported"
)
def test_frozen_jvm_does_not_stop_the_evaluation(paused):
    assert paused.stalled.annotations["reason"].startswith("silent: ")
    assert paused.stalled not in paused.after_pause
    assert paused.resumed.at > paused.stalled.at


def test_driver_whose_jvm_was_frozen_ends_normally(paused):
    assert paused.code == 0
    assert paused.reported == [
        ("firing", "StreamingQueryStalled", "paused"),
        ("resolved", "StreamingQueryStalled", "paused"),
    ]


@pytest.mark.fault(
    "Time and pauses", "SIGSTOP of a real driver, then SIGCONT", "Nobody is notified"
)
def test_driver_that_resumes_after_a_freeze_does_not_page(pages, tmp_path):
    freeze(12, pages, tmp_path)


@pytest.mark.soak
@pytest.mark.fault(
    "Time and pauses", "SIGSTOP of a real driver for 60 s, then SIGCONT", "Nobody is notified"
)
def test_driver_that_resumes_after_a_minute_does_not_page(pages, tmp_path):
    freeze(60, pages, tmp_path)


def freeze(seconds, pages, folder):
    """Stop Python and its JVM for that long, with a window of 5 s."""
    script = f"""
    sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"], stall_floor_seconds=5, start_grace_seconds=5)
    start("thawed")
    until_commits(sidecar, "thawed")
    say("committing")
    end = time.monotonic() + {seconds + 12}
    while time.monotonic() < end:
        time.sleep(0.1)
    say(f"alerts {{sidecar.alerts()}}")
    """
    with Driver(script, folder, PAGES=pages.url) as driver:
        driver.wait_for_line("committing")
        driver.signal_all(signal.SIGSTOP)
        time.sleep(seconds)
        driver.signal_all(signal.SIGCONT)
        driver.wait_for_line("alerts ()")

        assert driver.wait() == 0
        assert pages.pages == []
