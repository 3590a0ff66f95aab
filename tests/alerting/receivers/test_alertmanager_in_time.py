"""Alertmanager announces a failure after the wait of its group, with the shipped routes."""

import time

import pytest
import yaml
from support.alertmanager import RealAlertmanager
from support.deliveries import over
from support.observed import AlertReceivers, with_shipped_times
from support.patience import PATIENCE_SECONDS, until
from support.receiver_incidents import incident

from querypulse.alerting.delivery import Delivery
from querypulse.alerting.receivers.alertmanager import Alertmanager
from querypulse.core.guard import Guard

PROMISED_SECONDS = 15
QUERIES = [f"query_{number}" for number in range(8)]


def shipped(url):
    return yaml.safe_load(with_shipped_times(url))


def test_shipped_route_of_critical_alerts_waits_less_than_promised():
    (route,) = [
        one
        for one in shipped("http://hook.test")["route"]["routes"]
        if 'severity="critical"' in one["matchers"]
    ]

    assert int(route["group_wait"].removesuffix("s")) < PROMISED_SECONDS


@pytest.mark.slow
@pytest.mark.alertmanager
def test_stale_resolves_at_start_do_not_delay_the_news_of_a_failure(tmp_path):
    """A group that a stale resolve has opened would have to wait for its interval."""
    with AlertReceivers() as harness:
        config = shipped(harness.url)
        for route in (config["route"], *config["route"]["routes"]):
            route.update(group_wait="1s", group_interval="1h")
        real = RealAlertmanager(tmp_path, harness, yaml.safe_dump(config))
        delivery = Delivery(Alertmanager([real.url]), Guard())
        try:
            real.wait_until_ready()
            delivery.start()
            left_open = tuple(over(incident(name), time.time()) for name in QUERIES)
            delivery.offer((), left_open)
            failures = []
            for name in QUERIES[:2]:
                failures.append(incident(name, starts_at=time.time()))
                delivery.offer(tuple(failures), left_open)
                until(lambda name=name: is_notified(harness, name), f"{name} is notified")
        finally:
            delivery.close(PATIENCE_SECONDS)
            real.stop()

    assert not any(is_notified(harness, name) for name in QUERIES[2:])


def is_notified(harness, query):
    return any(one["labels"]["query"] == query for one in harness.reported)
