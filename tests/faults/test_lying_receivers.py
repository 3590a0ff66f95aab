"""Answers of receivers that lie cost bounded memory and time."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from support.deliveries import incident
from support.http_double import HttpDouble, raw, reply
from support.receivers import webhook

from querypulse.alerting.receivers.receiver import DeliveryError
from querypulse.core.states import DeliveryOutcome

CHUNK = b"x" * 1_000_000
AT_MOST_BYTES = 5_000_000


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


TRANSIENT, MISCONFIGURED = DeliveryOutcome.TRANSIENT, DeliveryOutcome.MISCONFIGURED
MISLABELLED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot gzip!"
LIES = {
    "200 and a huge body": (endless(b"HTTP/1.1 200 OK\r\n\r\n"), None),
    "503 and a huge body": (endless(b"HTTP/1.1 503 Busy\r\n\r\n"), TRANSIENT),
    "200 that claims gzip": (raw(MISLABELLED), None),
    "200 that is cut": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\ncut"), None),
    "a line without end": (endless(b"HTTP/1.1 200 OK\r\nX-Long: "), TRANSIENT),
    "1000 headers": (raw(b"HTTP/1.1 200 OK\r\n" + b"X-Many: 1\r\n" * 1000 + b"\r\n"), TRANSIENT),
    "no HTTP": (endless(b"220 mail.example ESMTP\r\n"), TRANSIENT),
    "a redirect to itself": (redirect_to_itself, MISCONFIGURED),
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
