"""One post over a real socket: limited in time, without secrets in any output."""

import itertools
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from email.utils import format_datetime, formatdate
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.http_double import HttpDouble, closed_port, drip, held, raw, reply
from support.patience import PATIENCE_SECONDS, ended

from querypulse.alerting.receivers.http import (
    MAX_RETRY_AFTER_SECONDS,
    HttpPoster,
    parse_retry_after,
    wait_asked_for,
)
from querypulse.alerting.receivers.receiver import DeliveryError, public_part
from querypulse.core import socket_deadline
from querypulse.core.secret import Secret
from querypulse.core.states import DeliveryOutcome

NOW = 1_800_000_000.0
PATH_SECRET = "B0000SECRETB0000"


def poster(double: HttpDouble, **options) -> HttpPoster:
    url = double.url.replace("//", "//someone:passw0rd@") + f"/services/{PATH_SECRET}?token=t0ken"
    return HttpPoster(Secret(url), setting="webhook_url", **options)


def refusal(double: HttpDouble, **options) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        ended(lambda: poster(double, **options).post(b"{}"))
    return caught.value


def test_body_is_sent_unchanged(double, tmp_path, monkeypatch):
    """A password in ~/.netrc has no effect, nor has an earlier connection."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    double.otherwise = reply(200, body=b"x" * 200_000)
    plain = HttpPoster(Secret(f"{double.url}/a?b=c"), setting="webhook_url")
    answers = [plain.post(b'{"a":1}', {"X": "y"}), plain.post(b"")]
    request, _ = double.requests

    assert answers == [b"x" * 64 * 1024] * 2
    assert (request.method, request.path, request.body) == ("POST", "/a?b=c", b'{"a":1}')
    assert (request.headers["Content-Type"], request.headers["X"]) == ("application/json", "y")
    assert request.headers["User-Agent"].startswith("querypulse/")
    assert request.headers["Authorization"] is None


def test_list_is_read_up_to_four_mebibytes(double):
    double.otherwise = reply(200, body=json.dumps(["x" * 200_000]).encode())

    assert len(poster(double).post(None, method="GET")) > 200_000


@pytest.mark.fault(
    "Receivers", "A receiver that redirects", "The redirect is not followed; the error is reported"
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_counts_as_a_rejection(double, status):
    """A redirect is not followed, because the alert could vanish or leak."""
    double.otherwise = reply(status, {"Location": f"{double.url}/elsewhere"}, b"x" * 100_000)
    error = refusal(double)

    assert (error.answer, error.status) == (DeliveryOutcome.MISCONFIGURED, status)
    assert len(double.requests) == 1


@pytest.mark.parametrize(
    ("answer", "outcome", "may_have_arrived"),
    [
        (reply(503), DeliveryOutcome.TRANSIENT, False),
        (reply(500), DeliveryOutcome.TRANSIENT, True),
        (reply(400), DeliveryOutcome.REJECTED, False),
        (reply(404), DeliveryOutcome.MISCONFIGURED, False),
        (raw(), DeliveryOutcome.TRANSIENT, True),
        (raw(b"HTTP/1.1 2"), DeliveryOutcome.TRANSIENT, True),
        (raw(b"SSH-2.0-x\r\n"), DeliveryOutcome.TRANSIENT, True),
        (raw(b"HTTP/1.1 100 Continue\r\n\r\n"), DeliveryOutcome.TRANSIENT, True),
    ],
    ids=[
        "outage",
        "gateway's error",
        "rejection",
        "misconfiguration",
        "hang-up",
        "cut off in the headers",
        "not HTTP",
        "100 alone",
    ],
)
def test_post_is_attempted_once(double, answer, outcome, may_have_arrived):
    double.otherwise = answer
    error = refusal(double)

    assert (error.answer, error.may_have_arrived) == (outcome, may_have_arrived)
    assert len(double.requests) == 1


def test_request_that_was_never_sent_is_marked():
    with closed_port() as port, pytest.raises(DeliveryError) as caught:
        HttpPoster(Secret(f"http://127.0.0.1:{port}"), setting="webhook_url").post(b"{}")
    error = caught.value

    assert (error.answer, error.may_have_arrived) == (DeliveryOutcome.TRANSIENT, False)
    assert "Connection refused" in str(error)


@pytest.mark.parametrize("answer", [reply(401), reply(503), raw(), reply(200)])
def test_secrets_appear_in_no_error_and_no_log(double, caplog, answer):
    """Not even if every library logs at DEBUG."""
    double.otherwise = answer
    shown = ""
    with caplog.at_level(logging.DEBUG):
        try:
            poster(double).post(b'{"routing_key":"b0dy"}', {"X": "he4der"})
        except DeliveryError as error:
            shown = f"{error} {error!r} {error.__cause__!r}"
    shown += caplog.text + repr(poster(double))

    for secret in (PATH_SECRET, "passw0rd", "t0ken", "b0dy", "he4der"):
        assert secret not in shown


# -- pauses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("is_date", [False, True])
def test_retry_after_is_passed_on(double, status, is_date):
    text = formatdate(time.time() + 120, usegmt=True) if is_date else "120"
    double.otherwise = reply(status, {"Retry-After": text})

    assert refusal(double).retry_after == pytest.approx(120.0, abs=60.0)
    assert len(double.requests) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        (" 5 ", 5.0),
        ("9" * 5000, MAX_RETRY_AFTER_SECONDS),
        ("-1", None),
        ("1.5", None),
        ("²", None),
        (None, None),
        (format_datetime(datetime.fromtimestamp(NOW + 30, timezone.utc), usegmt=True), 30.0),
        (format_datetime(datetime.fromtimestamp(NOW - 30, timezone.utc), usegmt=True), 0.0),
        ("Sun Nov  6 08:49:37 1994", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER_SECONDS),
    ],
)
def test_retry_after_is_seconds_or_a_date(text, seconds):
    """Both forms of RFC 9110 are parsed with an upper limit; anything else is ignored."""
    assert parse_retry_after(text, NOW) == seconds


@pytest.mark.fault(
    "Receivers", "Any text as `Retry-After`", "It is ignored, or a pause of at most five minutes"
)
@given(st.text())
def test_retry_after_never_raises(text):
    seconds = parse_retry_after(text, NOW)

    assert seconds is None or 0 <= seconds <= MAX_RETRY_AFTER_SECONDS


def test_429_without_retry_after_still_means_a_pause():
    """PagerDuty throttles without stating for how long."""
    assert wait_asked_for(429, None, NOW) == 5.0
    assert wait_asked_for(429, "7", NOW) == 7.0
    assert wait_asked_for(503, None, NOW) is None


# -- deadlines ------------------------------------------------------------------------------------


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
    """Each byte arrives in time, but the total deadline still applies."""
    double.otherwise = drip(start)
    refusal(double, total_seconds=0.4)


def test_200_counts_even_if_its_body_never_ends(double, monkeypatch):
    """The time goes on with each operation of the socket, so that it ends in the body."""
    looks = itertools.count(0.0, PATIENCE_SECONDS)
    monkeypatch.setattr(socket_deadline, "time", SimpleNamespace(monotonic=lambda: next(looks)))
    double.otherwise = drip(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")

    assert ended(lambda: poster(double, total_seconds=7 * PATIENCE_SECONDS).post(b"{}")) == b""


def test_closing_ends_a_post_in_progress_and_prevents_the_next(double):
    """A hanging server does not delay the end of the job: it never answers."""
    double.otherwise = held(threading.Event(), reply(200))
    hanging = poster(double)
    with ThreadPoolExecutor(1) as pool:
        post = pool.submit(hanging.post, b"{}")
        double.wait_for(1)
        hanging.close()
        with pytest.raises(DeliveryError):
            post.result(PATIENCE_SECONDS)
    with pytest.raises(DeliveryError, match="closed"):
        hanging.post(b"{}")

    assert len(double.requests) == 1


# -- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example.com/services/T/B/x?y=z", "https://hooks.example.com"),
        ("https://me:pw@example.com:8443/x", "https://example.com:8443"),
        ("http://localhost:9093/x", "http://localhost:9093"),
        ("http://127.8.8.8/x", "http://127.8.8.8"),
        ("http://[::1]:80/x", "http://[::1]:80"),
    ],
)
def test_only_scheme_host_and_port_of_a_url_are_shown(url, shown):
    """User info, path and query may all be secrets."""
    assert public_part(url, setting="webhook_url") == shown


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/secret-path",
        "http://localhost.example.com/secret-path",
        "ftp://example.com/secret-path",
        "example.com/secret-path",
        "https:///secret-path",
        "https://hooks..example.com/secret-path",
        f"https://{'x' * 70}.example.com/secret-path",
        "https://me:secret-path/x@example.com",
        "https://*/secret-path",
        "https://[::1/secret-path",
        "",
    ],
)
def test_bad_url_error_names_its_setting(url):
    with pytest.raises(ValueError, match="webhook_url") as caught:
        HttpPoster(Secret(url), setting="webhook_url")

    assert "secret" not in str(caught.value)


def test_plain_http_to_another_machine_must_be_allowed():
    """With allow_http, trusting the network is the user's decision."""
    assert public_part("http://hook:80/x", setting="s", allow_http=True) == "http://hook:80"
