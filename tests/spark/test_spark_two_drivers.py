"""Two drivers of one app name, on real processes: neither hides what the other reports."""

from __future__ import annotations

import signal

import pytest
from support.driver import HEADER, Driver
from support.pagerduty_double import PagerDutyDouble
from support.queries import until
from support.watching import watching

pytestmark = pytest.mark.spark

ATTACHED = """
key = "0123456789abcdef0123456789abcdef"
sidecar = attach(
    spark, http_port=0, pagerduty_routing_key=key, pagerduty_url=os.environ["PAGERDUTY"],
    resolve_after_seconds=1,
)
"""
FAILS = (
    ATTACHED
    + """
def fail(batch, batch_id):
    raise ValueError("negative amount")
start("gold", fail)
start("bronze")
until_commits(sidecar, "bronze")
say(sidecar.url)
threading.Event().wait()
"""
)
HEALTHY = (
    ATTACHED
    + """
for name in os.environ["QUERIES"].split():
    start(name)
until_commits(sidecar, *os.environ["QUERIES"].split())
# Longer than the resolves of what an earlier process left open take.
time.sleep(12)
sidecar.flush()
say(sidecar.url)
threading.Event().wait()
"""
)


def url_of(driver):
    def url_line():
        assert driver.process.poll() is None, driver.errors
        return next((line for line in driver.lines if line.startswith("http://")), None)

    return until(url_line, "the driver prints its URL", timeout=120)


@pytest.mark.parametrize(
    ("app", "queries"),
    [("orders", "silver"), ("pyspark-shell", "silver gold")],
    ids=["other queries", "the same queries under a generic name"],
)
def test_healthy_start_of_one_driver_does_not_resolve_the_alert_of_another(app, queries, tmp_path):
    header = HEADER.replace('appName("driver")', f'appName("{app}")')
    folders = tmp_path / "fails", tmp_path / "healthy"
    for folder in folders:
        folder.mkdir()
    with (
        PagerDutyDouble() as pagerduty,
        Driver(FAILS, folders[0], header=header, PAGERDUTY=pagerduty.enqueue_url) as failing,
    ):
        failing_url = url_of(failing)
        until(lambda: pagerduty.open, "its alert is open")
        with Driver(
            HEALTHY, folders[1], header=header, PAGERDUTY=pagerduty.enqueue_url, QUERIES=queries
        ) as healthy:
            healthy_url = url_of(healthy)
            assert pagerduty.open == {f"querypulse/{app}/gold/StreamingQueryFailed"}
            with watching(failing_url, healthy_url, interval=0.5, gone_after=2.0) as reported:
                until(lambda: len(reported.tracker.drivers) == 2, "both drivers are known")
                until(lambda: all(one.seen for one in reported.tracker.drivers.values()), "seen")
                healthy.signal_all(signal.SIGKILL)
                killed = f"{app}@{healthy_url.removeprefix('http://').rstrip('/')}"
                reported.wait_for(killed)

            assert set(reported.firing) == {killed}
            assert failing.process.poll() is None
