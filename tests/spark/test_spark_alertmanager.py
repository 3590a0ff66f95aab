"""Real drivers behind a real Alertmanager with the shipped routes: a failure is notified in time."""

from __future__ import annotations

import signal

import pytest
from support.alertmanager import RealAlertmanager
from support.driver import Driver
from support.observed import AlertReceivers, with_shipped_times
from support.queries import until

pytestmark = [pytest.mark.spark, pytest.mark.alertmanager]

PROMISED_SECONDS = 15.0
FAILED, HEALTHY = ("bronze", "silver"), ("gold", "platinum")

DRIVER = """
sidecar = attach(
    spark, app_name="etl", http_port=-1, alertmanager_urls=[os.environ["ALERTMANAGER"]]
)
def fail(batch, batch_id):
    raise ValueError("concurrent update")
for name in os.environ["HEALTHY"].split():
    start(name)
until_commits(sidecar, *os.environ["HEALTHY"].split())
for name in os.environ["FAILING"].split():
    query = start(name, fail)
    while query.isActive:
        time.sleep(0.02)
    say(f"{name} failed")
time.sleep(120)
"""


@pytest.fixture
def alertmanager(tmp_path):
    with AlertReceivers() as receivers:
        real = RealAlertmanager(tmp_path, receivers, with_shipped_times(receivers.url))
        try:
            real.wait_until_ready()
            yield real
        finally:
            real.stop()


def driver(folder, alertmanager, failing, healthy):
    folder.mkdir()
    names = {"FAILING": " ".join(failing), "HEALTHY": " ".join(healthy)}
    return Driver(DRIVER, folder, ALERTMANAGER=alertmanager.url, **names)


def notified_of(alertmanager, query):
    """How often the receivers of Alertmanager were notified that the query failed."""
    return sum(
        (one["labels"]["alertname"], one["labels"]["query"], one["status"])
        == ("StreamingQueryFailed", query, "firing")
        for one in alertmanager.reported.reported
    )


def wait_until_notified(alertmanager, query):
    until(lambda: notified_of(alertmanager, query), f"{query} is notified", PROMISED_SECONDS)


def test_failures_are_notified_in_time_also_after_a_driver_left_alerts_open(alertmanager, tmp_path):
    """B1"""
    with driver(tmp_path / "first", alertmanager, FAILED, HEALTHY) as first:
        for name in FAILED:
            first.wait_for_line(f"{name} failed")
            wait_until_notified(alertmanager, name)
        first.signal_all(signal.SIGKILL)
    before = {name: notified_of(alertmanager, name) for name in HEALTHY}
    with driver(tmp_path / "second", alertmanager, HEALTHY, FAILED) as second:
        for name in HEALTHY:
            second.wait_for_line(f"{name} failed")
            wait_until_notified(alertmanager, name)

    assert set(before.values()) == {0}
