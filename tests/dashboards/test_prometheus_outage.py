"""A real Prometheus that is down itself while a driver is dead."""

from __future__ import annotations

import time

import pytest
from support.http_double import DoubleHandler, HttpDouble, RecordedRequest, reply
from support.observed import quick_rules
from support.patience import until
from support.prometheus import RealPrometheus

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]

MINUTE = 1
OUTAGE_SECONDS = 12 * MINUTE
"""Longer than the ten minutes that every rule looks back, and than the lookback of Prometheus."""
DOWN, FAILED = "StreamingDriverDown", "StreamingQueryFailed"
FAILURE = f'spark_streaming_query_alert{{app="shop",query="orders",alertname="{FAILED}",severity="critical"}}'


class Scraped(HttpDouble):
    """A driver as Prometheus sees it; ``figures`` are its metrics now, None while it is dead."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: bool | None = True

    def handle(self, request: RecordedRequest, handler: DoubleHandler) -> None:
        if self.failed is None:
            return reply(503)(handler)
        beats = [
            f'querypulse_driver_{name}_timestamp_seconds{{app="shop"}} {time.time()}'
            for name in ("heartbeat", "expected")
        ]
        text = "\n".join([*beats, f"{FAILURE} {int(self.failed)}", ""])
        return reply(200, {"Content-Type": "text/plain"}, text.encode())(handler)


def firing(prometheus):
    return {
        alert["labels"]["alertname"]
        for alert in prometheus.alerts()
        if alert["state"] == "firing" and alert["labels"]["app"] == "shop"
    }


@pytest.mark.fault(
    "Prometheus", "it is down while a driver is dead", "both alerts of the driver go on"
)
def test_outage_of_prometheus_itself_ends_no_alert_of_a_dead_driver(tmp_path):
    def prometheus():
        rules = quick_rules(tmp_path, MINUTE)
        flags = [f"--query.lookback-delta={3 * MINUTE}s"]
        return RealPrometheus(tmp_path, [driver.url], rules=rules, flags=flags)

    with Scraped() as driver:
        with prometheus() as real:
            until(lambda: firing(real) == {FAILED}, "the failure fires")
            driver.failed = None
            until(lambda: firing(real) == {FAILED, DOWN}, "both fire")
        stopped_at = time.monotonic()
        until(lambda: time.monotonic() - stopped_at > OUTAGE_SECONDS, "the outage lasts")
        with prometheus() as real:
            until(lambda: firing(real) == {FAILED, DOWN}, "both fire again")
            (lowest,) = real.query("min_over_time(spark_streaming_query_alert:last[1h])")
            assert lowest["value"][1] == "1"
            driver.failed = False
            until(lambda: firing(real) == set(), "both have ended")
