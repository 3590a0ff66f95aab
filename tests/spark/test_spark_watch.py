"""``querypulse watch`` on real Spark drivers; ``test_spark_ends`` has each way to end a process."""

from __future__ import annotations

import signal
import time

import pytest
from support.driver import Driver
from support.queries import until
from support.watching import is_seen, watching

pytestmark = pytest.mark.spark

GONE_AFTER = 2.0
WAITS = """
sidecar = attach(spark, http_port=0)
query = start("bronze")
while [one.state for one in sidecar.snapshot().queries] != ["running"]:
    time.sleep(0.05)
say(sidecar.url)
"""


def url_of(driver):
    def url_line():
        assert driver.process.poll() is None, driver.errors
        return next((line for line in driver.lines if line.startswith("http://")), None)

    return until(url_line, "the driver prints its URL", timeout=90)


@pytest.mark.fault("Ends and kills", "SIGKILL of the driver", "`querypulse watch` reports it")
def test_killed_driver_is_reported_after_the_grace_period(tmp_path):
    with (
        Driver(WAITS + "time.sleep(300)", tmp_path) as driver,
        watching(url_of(driver), interval=5.0, gone_after=GONE_AFTER) as reported,
    ):
        until(lambda: is_seen(reported, "driver"), "the driver is seen")
        time.sleep(1.0)
        driver.signal_all(signal.SIGKILL)
        killed_at = time.monotonic()

        assert reported.wait_for("driver") - killed_at < GONE_AFTER + 3.0
    assert reported.pages["driver"]["unhealthy_before"] == "none: every query was healthy"


def test_stop_of_spark_is_not_reported_while_the_script_goes_on(tmp_path):
    go = tmp_path / "go"
    script = f"{WAITS}\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.1)\nspark.stop()\ntime.sleep(300)"
    with (
        Driver(script, tmp_path) as driver,
        watching(url_of(driver), interval=1.0, gone_after=GONE_AFTER) as reported,
    ):
        until(lambda: is_seen(reported, "driver"), "the driver is seen")
        time.sleep(1.0)
        go.touch()
        stopped = lambda: all(one.stopped for one in reported.tracker.drivers.values())
        until(stopped, "the shutdown notice arrives", timeout=30)
        time.sleep(3 * GONE_AFTER)
        assert reported.firing == {}
        assert driver.process.poll() is None
