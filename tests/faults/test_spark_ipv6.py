"""A driver, its receiver and its watcher that only use IPv6. Uses real Spark."""

from __future__ import annotations

import socket

import pytest
import requests
from support.pages import PageRecorder
from support.patience import PATIENCE_SECONDS
from support.queries import Trap, commits, rate, start, until
from support.watching import is_seen, watching

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


@pytest.mark.fault(
    "Disk, port and mounts",
    "Driver, receiver and watcher have only IPv6",
    "A failure is reported, `/status` is served, the watcher sees the driver and its end",
)
@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_driver_receiver_and_watcher_work_over_ipv6(spark, watch):
    trap = Trap()
    with PageRecorder(("::1", 0)) as pages:
        sidecar = watch(app_name="six", http_host="::1", webhook_url=pages.url)
        assert sidecar.url.startswith("http://[::1]:")
        query = start(rate(spark), "doomed", trap)
        commits(sidecar, "doomed")
        with watching(sidecar.url, gone_after=PATIENCE_SECONDS) as reported:
            until(lambda: is_seen(reported, "six"), "the watcher sees the driver")
            trap.die.set()
            pages.wait_for("StreamingQueryFailed", "doomed", timeout=PATIENCE_SECONDS)
            until(lambda: states_of(sidecar) == ["failed"], "the failure is served")
            sidecar.close()
            (driver,) = reported.tracker.drivers
            until(lambda: driver.is_stopped, "the watcher knows that it was closed")

    assert reported.firing == {}
    assert not query.isActive


def states_of(sidecar):
    status = requests.get(f"{sidecar.url}/status", timeout=PATIENCE_SECONDS).json()
    return [query["state"] for query in status["queries"]]
