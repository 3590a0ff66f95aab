"""Deliveries over real HTTP: outages, lost answers, hanging servers, and the interpreter's exit."""

import io
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from support.http_double import HttpDouble, held, reply
from support.pagerduty_double import PagerDutyDouble

from querypulse.alerting import Alert
from querypulse.alerting.delivery import Delivery
from querypulse.alerting.receivers.pagerduty import PagerDuty
from querypulse.alerting.receivers.receiver import Receiver
from querypulse.alerting.receivers.webhook import Webhook
from querypulse.listener.guard import Guard

PATIENCE_SECONDS = 10.0
ROUTING_KEY = "R0123456789abcdefghijklmnopqrstu"
ALERT = Alert(
    {"alertname": "QueryFailed", "app": "etl", "query": "a", "severity": "critical"}, {}, 1000.0
)


@contextmanager
def delivering(receiver: Receiver) -> Iterator[Delivery]:
    delivery = Delivery(receiver, Guard())
    delivery.start()
    try:
        yield delivery
    finally:
        delivery.close(PATIENCE_SECONDS)


@contextmanager
def paging() -> Iterator[tuple[PagerDutyDouble, Delivery]]:
    with (
        PagerDutyDouble() as double,
        delivering(PagerDuty(ROUTING_KEY, url=double.enqueue_url)) as delivery,
    ):
        yield double, delivery


def test_close_is_quick_while_a_server_hangs():
    """The request under way is cut; the job does not wait for a webhook."""
    hanging = held(threading.Event(), reply(200))
    with HttpDouble(otherwise=hanging) as double, delivering(Webhook(double.url)) as delivery:
        delivery.offer((ALERT,))
        double.wait_for(1)
        began = time.monotonic()
        delivery.close(PATIENCE_SECONDS)

        assert time.monotonic() - began < 1.0
        assert "querypulse-deliver-webhook" not in {one.name for one in threading.enumerate()}


def test_a_webhook_that_was_down_is_told_in_the_end():
    """First nothing but 503, then it is back: trigger and resolve, in order, once."""
    down = reply(503)
    with HttpDouble(otherwise=down) as double, delivering(Webhook(double.url)) as delivery:
        delivery.offer((ALERT,))
        assert delivery.flush(PATIENCE_SECONDS) is False
        double.wait_for(3)
        double.otherwise = reply(200)
        assert delivery.flush(PATIENCE_SECONDS)
        delivery.offer(())
        assert delivery.flush(PATIENCE_SECONDS)

    statuses = [b'"status":"resolved"' in request.body for request in double.requests[-2:]]
    assert statuses == [False, True]


def test_an_incident_whose_answer_was_lost_is_closed_all_the_same():
    """PagerDuty took the trigger and hung up; the alert ended meanwhile."""
    with paging() as (double, delivery):

        def take_and_hang_up(handler):
            handler.wfile = io.BytesIO()
            double.process(handler)
            handler.close_connection = True

        double.otherwise = take_and_hang_up
        delivery.offer((ALERT,))
        assert delivery.flush(PATIENCE_SECONDS) is False
        assert double.open == {ALERT.key}
        double.otherwise = double.process
        delivery.offer(())
        assert delivery.flush(PATIENCE_SECONDS)

    assert double.open == set()
    assert double.incidents == {ALERT.key: 1}


def test_pagerduty_gets_back_what_a_wrong_key_cost(caplog):
    """Refused while the key is wrong, kept, and paged when it is put right."""
    with paging() as (double, delivery), caplog.at_level(logging.DEBUG):
        double.otherwise = reply(400)
        delivery.offer((ALERT,))
        assert delivery.flush(PATIENCE_SECONDS) is False
        double.otherwise = double.process
        assert delivery.flush(PATIENCE_SECONDS)

    assert double.open == {ALERT.key}
    assert ROUTING_KEY not in caplog.text


LAST_WORDS = """
import atexit, sys
from querypulse.alerting import Alert
from querypulse.alerting.delivery import Delivery
from querypulse.alerting.receivers.webhook import Webhook
from querypulse.listener.guard import Guard

delivery = Delivery(Webhook(sys.argv[1]), Guard())
delivery.start()
labels = {"alertname": "QueryFailed", "app": "etl", "query": "a", "severity": "critical"}

@atexit.register
def tell():
    delivery.offer((Alert(labels, {}, 1000.0),))
    print(delivery.flush(5.0))
    delivery.close(1.0)
"""


def test_an_alert_still_leaves_while_the_interpreter_exits():
    """A driver often exits right after its query died; no new thread can start by then."""
    with HttpDouble() as double:
        command = [sys.executable, "-I", "-c", LAST_WORDS, double.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert (done.stdout.strip(), done.stderr) == ("True", "")
    assert len(double.requests) == 1
