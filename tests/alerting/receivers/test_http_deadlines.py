"""No server can hold up a post for long, and closing ends it at once."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from support.http_double import PATIENCE_SECONDS, HttpDouble, drip, held, reply

from querypulse.alerting.receivers.http import DeadlineAdapter, HttpError, HttpPoster
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
    began = time.monotonic()
    with pytest.raises(HttpError):
        poster(double, total_seconds=0.4).post(b"{}", NOW)

    assert time.monotonic() - began < 1.0


def test_200_counts_even_if_its_body_never_ends(double):
    """The status has arrived; a dripping body does not change it."""
    double.otherwise = drip(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")

    assert poster(double, total_seconds=0.4).post(b"{}", NOW) == b""


def test_closing_ends_a_post_in_progress(double):
    """A hanging server does not delay the end of the job."""
    double.otherwise = held(threading.Event(), reply(200))
    hanging = poster(double)
    with ThreadPoolExecutor(1) as pool:
        post = pool.submit(hanging.post, b"{}", NOW)
        double.wait_for(1)
        began = time.monotonic()
        hanging.close()
        with pytest.raises(HttpError):
            post.result(PATIENCE_SECONDS)

    assert time.monotonic() - began < 1.0
    assert len(double.requests) == 1


def test_cut_before_the_answer_takes_effect(double):
    """Closing between the request and its answer leaves nobody waiting."""
    double.otherwise = held(threading.Event(), reply(200))
    wire = DeadlineAdapter()
    wire.cut()
    began = time.monotonic()
    with pytest.raises(requests.RequestException):
        wire.send(requests.Request("POST", double.url).prepare(), timeout=PATIENCE_SECONDS)

    assert time.monotonic() - began < 1.0


def test_closed_poster_sends_nothing(double):
    """A post after close fails without a request."""
    closed = poster(double)
    closed.close()
    with pytest.raises(HttpError, match="closed"):
        closed.post(b"{}", NOW)

    assert not double.requests
