"""One HTTP post over a real socket: limited in time, without secrets in any output."""

import logging
from collections.abc import Iterator
from email.utils import formatdate

import pytest
from support.http_double import HttpDouble, raw, reply

from querypulse.alerting.receivers import http
from querypulse.alerting.receivers.http import HttpError, HttpPoster
from querypulse.core.secret import Secret
from querypulse.core.states import DeliveryOutcome

NOW = 1_800_000_000.0
PATH_SECRET = "B0000SECRETB0000"


@pytest.fixture
def double() -> Iterator[HttpDouble]:
    with HttpDouble() as double:
        yield double


def poster(double: HttpDouble, **options) -> HttpPoster:
    url = double.url.replace("//", "//someone:passw0rd@") + f"/services/{PATH_SECRET}?token=t0ken"
    return HttpPoster(Secret(url), setting="webhook_url", **options)


def test_body_is_sent_unchanged(double):
    """The serialised body is posted to the full path and query."""
    answer = poster(double).post(b'{"a":1}', NOW, lambda wall: {"X-At": f"{wall:.0f}"})
    (request,) = double.requests

    assert answer == b""
    assert (request.method, request.body) == ("POST", b'{"a":1}')
    assert request.path == f"/services/{PATH_SECRET}?token=t0ken"
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["User-Agent"].startswith("querypulse/")
    assert request.headers["X-At"] == f"{NOW:.0f}"


def test_one_connection_serves_many_posts(double):
    """A fully read answer leaves its connection for the next post."""
    double.otherwise = reply(200, body=b"ok")
    post = poster(double).post

    assert [post(b"{}", NOW), post(b"{}", NOW)] == [b"ok", b"ok"]
    assert len(double._connections) == 1


def test_idle_connection_is_not_reused(double, monkeypatch):
    """A firewall may have dropped it silently."""
    monkeypatch.setattr(http, "MAX_IDLE_SECONDS", 0.0)
    post = poster(double).post

    assert [post(b"{}", NOW), post(b"{}", NOW)] == [b"", b""]
    assert len(double._connections) == 2


def test_credentials_of_the_environment_are_ignored(double, tmp_path, monkeypatch):
    """A password in ~/.netrc has no effect."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password hunter2\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    HttpPoster(Secret(double.url), setting="webhook_url").post(b"{}", NOW)

    assert double.requests[0].headers["Authorization"] is None


@pytest.mark.fault(
    "Receivers", "A receiver that redirects", "The redirect is not followed; the error is reported"
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_counts_as_a_rejection(double, status):
    """A redirect is not followed, because the alert could vanish or leak."""
    double.otherwise = reply(status, {"Location": f"{double.url}/elsewhere"}, b"x" * 100_000)
    with pytest.raises(HttpError) as caught:
        poster(double).post(b"{}", NOW)

    assert caught.value.answer is not DeliveryOutcome.TRANSIENT
    assert caught.value.status == status
    assert len(double.requests) == 1


def test_brief_outage_is_bridged_by_retries(double):
    """A post is attempted three times."""
    double.script.extend([reply(503), raw()])
    poster(double).post(b"{}", NOW)

    assert len(double.requests) == 3


def test_longer_outage_is_left_to_the_schedule(double):
    """After three attempts the error is transient."""
    double.otherwise = reply(503)
    with pytest.raises(HttpError) as caught:
        poster(double).post(b"{}", NOW)

    assert caught.value.answer is DeliveryOutcome.TRANSIENT
    assert len(double.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422])
def test_rejection_is_not_retried(double, status):
    """A failure that will not pass by itself is raised at once."""
    double.otherwise = reply(status)
    with pytest.raises(HttpError) as caught:
        poster(double).post(b"{}", NOW)

    assert caught.value.answer is not DeliveryOutcome.TRANSIENT
    assert not caught.value.may_have_arrived
    assert len(double.requests) == 1


def test_short_retry_after_is_waited_for(double, pauses):
    """The poster waits for one second itself."""
    double.script.append(reply(429, {"Retry-After": "1"}))
    poster(double).post(b"{}", NOW)

    assert pauses == [1.0]
    assert len(double.requests) == 2


@pytest.mark.parametrize("form", ["120", formatdate(NOW + 120, usegmt=True)])
@pytest.mark.parametrize("status", [429, 503])
def test_long_retry_after_is_passed_on(double, status, form):
    """The schedule waits, not the thread."""
    double.otherwise = reply(status, {"Retry-After": form})
    with pytest.raises(HttpError) as caught:
        poster(double).post(b"{}", NOW)

    assert caught.value.retry_after == pytest.approx(120.0, abs=30.0)
    assert len(double.requests) == 1


def test_long_answer_is_read_in_part(double):
    """64 KiB of any answer are enough."""
    double.otherwise = reply(200, body=b"x" * 200_000)

    assert len(poster(double).post(b"{}", NOW)) == 64 * 1024


@pytest.mark.parametrize(
    "answer",
    [raw(), raw(b"HTTP/1.1 2"), raw(b"SSH-2.0-x\r\n"), reply(500), reply(504)],
    ids=["hang-up", "cut off in the headers", "not HTTP", "500", "504"],
)
def test_request_that_may_have_arrived_is_marked(double, answer):
    """The request was sent, and its outcome is unknown."""
    double.otherwise = answer
    with pytest.raises(HttpError) as caught:
        poster(double).post(b"{}", NOW)

    assert caught.value.answer is DeliveryOutcome.TRANSIENT
    assert caught.value.may_have_arrived


def test_uncertain_delivery_stays_uncertain_after_a_clear_rejection(double):
    """The first attempt may have arrived, whatever the second one was answered."""
    double.script.extend([raw(), reply(401)])
    with pytest.raises(HttpError, match="401") as caught:
        poster(double).post(b"{}", NOW)

    assert caught.value.may_have_arrived


def test_request_that_was_never_sent_is_marked():
    """A refused connection carried nothing."""
    with HttpDouble() as gone:
        pass
    with pytest.raises(HttpError, match="Connection refused") as caught:
        poster(gone).post(b"{}", NOW)

    assert caught.value.answer is DeliveryOutcome.TRANSIENT
    assert not caught.value.may_have_arrived


@pytest.mark.parametrize("answer", [reply(401), reply(503), raw(), reply(200)])
def test_secrets_appear_in_no_error_and_no_log(double, caplog, answer):
    """Not even if every library logs at DEBUG."""
    double.otherwise = answer
    shown = ""
    with caplog.at_level(logging.DEBUG):
        try:
            poster(double).post(b'{"routing_key":"b0dy"}', NOW, lambda _: {"X": "he4der"})
        except HttpError as error:
            shown = f"{error} {error!r} {error.__cause__!r}"
    shown += caplog.text + repr(poster(double))

    for secret in (PATH_SECRET, "passw0rd", "t0ken", "b0dy", "he4der"):
        assert secret not in shown
