"""The JVM of the driver ends and Python is left, on real processes."""

from __future__ import annotations

import signal
import time

import pytest
from support.driver import Driver

pytestmark = pytest.mark.spark

WAITS = """
sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"])
for name in ("bronze", "silver", "gold"):
    start(name)
until_commits(sidecar, "bronze", "silver", "gold")
say("ready")
sidecar.await_any_failure()
say("never")
"""


def test_a_killed_jvm_ends_the_application_that_waits_and_is_reported(pages, tmp_path):
    with Driver(WAITS, tmp_path, PAGES=pages.url) as driver:
        driver.wait_for_line("ready")
        driver.signal_jvm(signal.SIGKILL)
        killed_at = time.monotonic()
        code = driver.wait(30)

        assert time.monotonic() - killed_at < 10
        assert code == 1
        assert "QueryFailure: streaming query *: the JVM of the driver has ended" in driver.errors
        assert "never" not in driver.lines
        page = pages.wait_for("DriverGone", "*")
        assert page.annotations["reason"] == (
            "the JVM of the driver has ended, and 3 streaming queries with it: bronze, gold, silver"
        )
        assert [what for what in pages.told if what[0] == "firing"] == [
            ("firing", "DriverGone", "*")
        ]


def test_a_jvm_that_is_only_frozen_is_not_gone(pages, tmp_path):
    with Driver(WAITS, tmp_path, PAGES=pages.url) as driver:
        driver.wait_for_line("ready")
        driver.signal_jvm(signal.SIGSTOP)
        time.sleep(6)
        driver.signal_jvm(signal.SIGCONT)
        time.sleep(2)

        assert driver.process.poll() is None
        assert pages.told == []


def test_a_planned_stop_that_takes_longer_than_every_grace_is_no_failure(pages, tmp_path):
    """A listener of somebody else's holds up the bus, which ``spark.stop()`` waits for."""
    script = """
    from pyspark.sql.streaming import StreamingQueryListener
    class Slow(StreamingQueryListener):
        def onQueryStarted(self, event): pass
        def onQueryProgress(self, event): time.sleep(2)
        def onQueryIdle(self, event): pass
        def onQueryTerminated(self, event): pass
    spark.streams.addListener(Slow())
    sidecar = attach(
        spark, http_port=0, webhook_url=os.environ["PAGES"], gone_grace_seconds=1,
        stall_floor_seconds=30,
    )
    for name in ("bronze", "silver"):
        start(name)
    until_commits(sidecar, "bronze", "silver")
    time.sleep(3)
    began = time.monotonic()
    spark.stop()
    say(f"stopped {time.monotonic() - began:.1f}")
    """
    with Driver(script, tmp_path, PAGES=pages.url) as driver:
        assert driver.wait(90) == 0
        (said,) = (line for line in driver.lines if line.startswith("stopped"))
        assert float(said.split()[1]) > 3
        assert pages.told == []
