"""No server can hold up a post beyond its deadline, and closing ends it."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import requests
from support.clock import Clock
from support.ending import NEVER, ended
from support.http_double import HttpDouble, drip, held, reply
from support.patience import PATIENCE_SECONDS

from querypulse.alerting.receivers import http
from querypulse.alerting.receivers.http import DeadlineAdapter, HttpError, HttpPoster
from querypulse.core import socket_deadline
from querypulse.core.secret import Secret

NOW = 1_800_000_000.0


@pytest.fixture
def double() -> Iterator[HttpDouble]:
    with HttpDouble() as double:
        yield double


def poster(double: HttpDouble, **options) -> HttpPoster:
    return HttpPoster(Secret(double.url), setting="webhook_url", **options)


@pytest.mark.fault(
    "Receivers", "A receiver sends one byte at a time", "The attempt ends at its deadline"
)
@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nX-Long: ",
        b"HTTP/1.1 503 Busy\r\nContent-Length: 100000\r\n\r\n",
        b"HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-Length: 100000\r\n\r\n",
    ],
    ids=["in the headers", "in the body", "in a redirect"],
)
def test_dripping_server_cannot_hold_up_a_post(double, start):
    """Each byte arrives within the read timeout, but the total deadline still applies."""
    double.otherwise = drip(start)
    with pytest.raises(HttpError):
        ended(lambda: poster(double, total_seconds=0.4).post(b"{}", NOW))


def test_200_counts_even_if_its_body_never_ends(double, monkeypatch):
    """The status has arrived; a dripping body does not change it."""
    clock, read = Clock(), http._read
    monkeypatch.setattr(socket_deadline, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(http, "time", SimpleNamespace(monotonic=clock))

    def read_after_the_deadline(*arguments):
        clock.now = 11.0
        return read(*arguments)

    monkeypatch.setattr(http, "_read", read_after_the_deadline)
    double.otherwise = drip(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")

    assert ended(lambda: poster(double, total_seconds=10.0).post(b"{}", NOW)) == b""


def test_closing_ends_a_post_in_progress(double):
    """A hanging server does not delay the end of the job: it never answers."""
    double.otherwise = held(threading.Event(), reply(200))
    hanging = poster(double)
    with ThreadPoolExecutor(1) as pool:
        post = pool.submit(hanging.post, b"{}", NOW)
        double.wait_for(1)
        hanging.close()
        with pytest.raises(HttpError):
            post.result(PATIENCE_SECONDS)

    assert len(double.requests) == 1


def test_cut_before_the_answer_takes_effect(double):
    """Closing between the request and its answer leaves nobody waiting."""
    double.otherwise = held(threading.Event(), reply(200))
    wire = DeadlineAdapter()
    wire.cut()
    request = requests.Request("POST", double.url).prepare()
    with pytest.raises(requests.RequestException):
        ended(lambda: wire.send(request, timeout=NEVER))


def test_closed_poster_sends_nothing(double):
    """A post after close fails without a request."""
    closed = poster(double)
    closed.close()
    with pytest.raises(HttpError, match="closed"):
        closed.post(b"{}", NOW)

    assert not double.requests
