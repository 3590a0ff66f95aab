"""Deliveries over real HTTP: outages, lost answers, hanging servers, and the interpreter's exit."""

import io
import logging
import subprocess
import sys
from contextlib import contextmanager

import pytest
from support.deliveries import incident
from support.http_double import HttpDouble, reply
from support.pagerduty_double import PagerDutyDouble
from support.patience import PATIENCE_SECONDS, Clock
from support.receivers import ROUTING_KEY, pagerduty, webhook

from querypulse.alerting.delivery.deliveries import Delivery
from querypulse.core.guard import Guard

PAGE = incident()


@contextmanager
def delivering(receiver, **options):
    delivery = Delivery(receiver, Guard(), **options)
    delivery.start()
    try:
        yield delivery
    finally:
        delivery.close(PATIENCE_SECONDS)


def test_incident_whose_answer_was_lost_is_resolved():
    """PagerDuty accepts the trigger and hangs up; the alert ends in the meantime."""

    def take_and_hang_up(handler):
        handler.wfile = io.BytesIO()
        double.process(handler)
        handler.close_connection = True

    with PagerDutyDouble() as double, delivering(pagerduty(double)) as delivery:
        double.otherwise = take_and_hang_up
        delivery.offer((PAGE,))
        assert delivery.flush(PATIENCE_SECONDS) is False
        assert double.open == {PAGE.key}
        double.otherwise = double.process
        delivery.offer(())
        assert delivery.flush(PATIENCE_SECONDS)

    assert double.open == set()
    assert double.incidents == {PAGE.key: 1}


def test_page_rejected_for_a_wrong_key_is_sent_after_the_fix(caplog):
    caplog.set_level(logging.DEBUG)
    with PagerDutyDouble() as double, delivering(pagerduty(double)) as delivery:
        double.otherwise = reply(403)
        delivery.offer((PAGE,))
        assert delivery.flush(PATIENCE_SECONDS) is False
        double.otherwise = double.process
        assert delivery.flush(PATIENCE_SECONDS)

    assert double.open == {PAGE.key}
    assert ROUTING_KEY not in caplog.text


def test_outage_and_rate_limit_deliver_exactly_one_page():
    """500 for 30 seconds, then 429 with ``Retry-After: 3``, then 202; delivered 34 seconds late."""
    clock, taken = Clock(), []

    def take(handler):
        taken.append((clock.now, handler.double.requests[-1].headers["Idempotency-Key"]))
        reply(202)(handler)

    answers = [(now, reply(500)) for now in (0.0, 1.0, 3.0, 7.0, 15.0)]
    answers += [(31.0, reply(429, {"Retry-After": "3"})), (34.0, take)]
    with HttpDouble() as double, delivering(webhook(double), clock=clock) as delivery:
        for clock.now, double.otherwise in answers:
            before = sum(delivery.outcomes.values())
            delivery.offer((PAGE,))
            wait_for_attempt(delivery, before)
        assert delivery.pending == 0
        delivery.offer((PAGE,))
        assert delivery.flush(PATIENCE_SECONDS)

    assert [at for at, _ in taken] == [34.0]
    assert len({one.headers["Idempotency-Key"] for one in double.requests}) == 1


def wait_for_attempt(delivery, before):
    """Wait until one more attempt is recorded."""
    with delivery._changed:
        assert delivery._changed.wait_for(
            lambda: sum(delivery.outcomes.values()) > before and not delivery._outbox.is_sending,
            PATIENCE_SECONDS,
        )


EXIT_SCRIPT = """
import atexit, sys
from querypulse.alerting.alert import Alert, Incident
from querypulse.alerting.delivery.deliveries import Delivery
from querypulse.core.guard import Guard
from querypulse.sidecar.assemble import make_receivers
from querypulse.settings.settings import Settings

(webhook,) = make_receivers(Settings(webhook_url=sys.argv[1]))
delivery = Delivery(webhook, Guard())
delivery.start()
labels = {"alertname": "StreamingQueryFailed", "app": "etl", "query": "a", "severity": "critical"}

@atexit.register
def notify():
    delivery.offer((Incident("key", labels, "critical", (Alert(labels, {}, 1000.0),)),))
    print(delivery.flush(60.0))
    delivery.close(1.0)
"""


@pytest.mark.fault(
    "Ends and kills", "The interpreter exits while an alert waits", "The alert is sent"
)
def test_alert_is_sent_while_the_interpreter_exits():
    """A driver often exits right after its query failed; no new thread can start by then."""
    with HttpDouble() as double:
        command = [sys.executable, "-I", "-c", EXIT_SCRIPT, double.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS)

    assert (done.stdout.strip(), done.stderr) == ("True", "")
    assert len(double.requests) == 1
