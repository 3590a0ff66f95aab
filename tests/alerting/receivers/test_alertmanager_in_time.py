"""Time from a failure to Alertmanager's first notification, with the shipped routes and timings."""

import time

import pytest
from support.alertmanager import RealAlertmanager
from support.deliveries import over
from support.observed import AlertReceivers, with_shipped_times
from support.queries import until
from support.receiver_incidents import incident

from querypulse.alerting.delivery import Delivery
from querypulse.alerting.receivers.alertmanager import Alertmanager
from querypulse.core.guard import Guard

pytestmark = [pytest.mark.alertmanager, pytest.mark.slow]

PROMISED_SECONDS = 15.0
QUERIES = [f"query_{number}" for number in range(8)]


def test_failure_is_notified_in_time_despite_stale_resolves_at_start(tmp_path):
    with AlertReceivers() as harness:
        real = RealAlertmanager(tmp_path, harness, with_shipped_times(harness.url))
        delivery = Delivery(Alertmanager([real.url]), Guard())
        try:
            real.wait_until_ready()
            delivery.start()
            left_open = tuple(over(incident(name), time.time()) for name in QUERIES)
            delivery.offer((), left_open)
            failures, taken = [], []
            for name in QUERIES[:2]:
                began = time.monotonic()
                failures.append(incident(name, starts_at=time.time()))
                delivery.offer(tuple(failures), left_open)
                until(lambda name=name: is_notified(harness, name), f"{name} is notified", 30)
                taken.append(time.monotonic() - began)
        finally:
            delivery.close(10)
            real.stop()

    assert max(taken) < PROMISED_SECONDS
    assert not any(is_notified(harness, name) for name in QUERIES[2:])


def is_notified(harness, query):
    return any(one["labels"]["query"] == query for one in harness.reported)
