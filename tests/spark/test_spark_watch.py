"""``querypulse watch`` on real Spark drivers that are killed or shut down."""

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
import signal
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


@pytest.mark.parametrize(
    "end",
    [
        "sys.exit(3)",
        "spark.stop(); time.sleep(8)",
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); os.kill(os.getpid(), signal.SIGTERM)",
    ],
    ids=["exits", "stops Spark", "handles SIGTERM"],
)
def test_orderly_shutdown_is_not_reported(tmp_path, end):
    go = tmp_path / "go"
    script = f"{WAITS}\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.1)\n{end}\n"
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
