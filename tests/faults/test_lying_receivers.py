"""Receivers that lie, or whose clock is wrong, cost bounded memory, delay no alert and lose none."""

from __future__ import annotations

import time
import tracemalloc
from email.utils import formatdate

import pytest
from support.deliveries import incident
from support.http_double import HttpDouble, raw, reply
from support.patience import PATIENCE_SECONDS
from support.receivers import at, webhook

from querypulse.alerting.delivery import Delivery
from querypulse.alerting.receivers.http import MAX_RETRY_AFTER_SECONDS
from querypulse.alerting.receivers.receiver import DeliveryError
from querypulse.core.guard import Guard
from querypulse.core.states import DeliveryOutcome

CHUNK = b"x" * 1_000_000
AT_MOST_BYTES = 5_000_000
LOGIN_PAGE = b"\n<!DOCTYPE html><html>Please log in</html>"
SURE = ("pagerduty", "alertmanager", "slack", "teams")


@pytest.mark.fault(
    "Receivers",
    "A proxy answers 200 with its login page, in place of PagerDuty, an Alertmanager, Slack or Teams",
    "It does not count as delivered; the alert is kept",
)
@pytest.mark.parametrize("kind", SURE)
def test_login_page_of_a_proxy_is_no_delivery(kind):
    with HttpDouble(otherwise=reply(200, {"Content-Type": "text/html"}, LOGIN_PAGE)) as double:
        delivery = Delivery(at(kind, double.url), Guard())
        delivery.start()
        delivery.offer((incident(),))
        assert delivery.flush(PATIENCE_SECONDS) is False
        pending = delivery.pending
        delivery.close(PATIENCE_SECONDS)

    assert pending == 1
    assert delivery.outcomes[DeliveryOutcome.MISCONFIGURED.value] == 1
    assert delivery.outcomes[DeliveryOutcome.DELIVERED.value] == 0


def endless(head):
    """``head``, and then megabytes as fast as they are read, until the client closes."""

    def answer(handler):
        try:
            handler.connection.sendall(head)
            while True:
                handler.connection.sendall(CHUNK)
        except OSError:
            pass
        handler.close_connection = True

    return answer


def redirect_to_itself(handler):
    reply(307, {"Location": f"{handler.double.url}/hook"})(handler)


LIES = {
    "200 and a huge body": (endless(b"HTTP/1.1 200 OK\r\n\r\n"), None),
    "503 and a huge body": (
        endless(b"HTTP/1.1 503 Busy\r\n\r\n"),
        DeliveryOutcome.TRANSIENT,
    ),
    "200 that claims gzip": (
        raw(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot gzip!"),
        None,
    ),
    "200 shorter than it claims": (
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\nshort"),
        None,
    ),
    "a header line without end": (
        endless(b"HTTP/1.1 200 OK\r\nX-Long: "),
        DeliveryOutcome.TRANSIENT,
    ),
    "a thousand headers": (
        raw(b"HTTP/1.1 200 OK\r\n" + b"X-Many: 1\r\n" * 1000 + b"\r\n"),
        DeliveryOutcome.TRANSIENT,
    ),
    "no HTTP": (endless(b"220 mail.example ESMTP\r\n"), DeliveryOutcome.TRANSIENT),
    "a redirect to itself": (redirect_to_itself, DeliveryOutcome.MISCONFIGURED),
}


@pytest.mark.fault(
    "Receivers",
    "Answers that are endless, cut, mislabelled, no HTTP, or redirect to themselves",
    "The attempt ends, memory is bounded, and only a 200 counts as delivered",
)
@pytest.mark.parametrize("lie", LIES)
def test_attempt_ends_though_the_answer_lies_and_costs_bounded_memory(lie):
    answer, meant = LIES[lie]
    outcome = None
    with HttpDouble(otherwise=answer) as double:
        receiver = webhook(double)
        tracemalloc.start()
        try:
            receiver.send(incident(), time.time())
        except DeliveryError as error:
            outcome = error.answer
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        receiver.close()

    assert outcome is meant
    assert peak < AT_MOST_BYTES


@pytest.mark.fault(
    "Receivers",
    "A receiver with a wrong clock asks for a pause until 1970 or 2099",
    "The next attempt is due within five minutes",
)
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("year", [1970, 2099])
def test_receiver_with_a_clock_of_1970_or_2099_delays_no_page_for_long(status, year):
    wrong = formatdate((year - 1970) * 365.25 * 86400.0, usegmt=True)
    with HttpDouble(otherwise=reply(status, {"Retry-After": wrong, "Date": wrong})) as double:
        delivery = Delivery(webhook(double), Guard())
        delivery.start()
        delivery.offer((incident(),))
        assert delivery.flush(PATIENCE_SECONDS) is False
        due = delivery._outbox.next_at(time.monotonic(), time.time()) - time.monotonic()
        delivery.close(PATIENCE_SECONDS)

    assert due <= MAX_RETRY_AFTER_SECONDS
