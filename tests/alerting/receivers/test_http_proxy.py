"""Posting through a proxy on loopback, only if a setting says so."""

import logging
import socket
import threading
from base64 import b64encode
from contextlib import suppress

import pytest
from support.ending import ended
from support.http_double import Answer, DoubleHandler, HttpDouble, closed_port, drip, reply
from support.patience import PATIENCE_SECONDS
from support.tls import Authority

from querypulse.alerting.receivers.http import HttpPoster
from querypulse.alerting.receivers.receiver import DeliveryError, HttpOptions
from querypulse.core.secret import Secret
from querypulse.core.states import DeliveryOutcome

PIECE = 65536


def tunnel(port: int) -> Answer:
    """A tunnel to ``port``, whatever name the client requested."""

    def answer(handler: DoubleHandler) -> None:
        with socket.create_connection(("127.0.0.1", port)) as target:
            handler.send_response(200)
            handler.end_headers()
            back = threading.Thread(target=_relay, args=(target, handler.connection))
            back.start()
            _relay(handler.connection, target)
            back.join()
        handler.close_connection = True

    return answer


def credentials(text: str) -> str:
    """The header that carries ``user:password`` to a proxy."""
    return f"Basic {b64encode(text.encode()).decode()}"


def port_of(double: HttpDouble) -> int:
    return double.server_address[1]


def _relay(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(PIECE):
            sink.sendall(data)
    except OSError:
        return  # either end hung up
    finally:
        with suppress(OSError):  # it may be gone already
            socket.socket.shutdown(sink, socket.SHUT_WR)


TARGET = "https://hook.test/services/B0000SECRETB0000"


@pytest.fixture
def target(authority):
    with HttpDouble(otherwise=reply(200, body=b"ok"), tls=authority.server("hook.test")) as double:
        yield double


@pytest.fixture
def proxy(target):
    with HttpDouble(otherwise=tunnel(port_of(target))) as double:
        yield double


def poster(authority, url=TARGET, *, total_seconds=PATIENCE_SECONDS, **options):
    http = HttpOptions(ca_file=authority.ca_file, **options)
    return HttpPoster(Secret(url), setting="webhook_url", http=http, total_seconds=total_seconds)


def refusal(authority, proxy_url, **options):
    with pytest.raises(DeliveryError) as caught:
        poster(authority, proxy_url=proxy_url, **options).post(b"{}")
    return caught.value


def test_https_uses_a_tunnel_that_reveals_only_the_host_name_to_the_proxy(authority, target, proxy):
    """The password of the proxy goes only to the proxy."""
    url = proxy.url.replace("//", "//me:hunter2@")
    sent = poster(authority, proxy_url=url)
    assert [sent.post(b"1"), sent.post(b"2")] == [b"ok", b"ok"]

    assert [(one.method, one.path) for one in proxy.requests] == [("CONNECT", "hook.test:443")] * 2
    assert [one.body for one in target.requests] == [b"1", b"2"]
    assert proxy.requests[0].headers["Proxy-Authorization"] == credentials("me:hunter2")
    assert target.requests[0].headers["Proxy-Authorization"] is None


def test_connection_to_the_proxy_may_use_tls(authority, target):
    with HttpDouble(otherwise=tunnel(port_of(target)), tls=authority.server()) as proxy:
        assert poster(authority, proxy_url=proxy.url).post(b"{}") == b"ok"

    assert len(target.requests) == 1


def test_plain_http_sends_the_full_url_to_the_proxy(authority):
    """If plain HTTP is allowed."""
    with HttpDouble(otherwise=reply(202)) as proxy:
        options = {"proxy_url": proxy.url, "allow_http": True}
        poster(authority, "http://hook.test/x?y=z", **options).post(b"{}")

        assert proxy.requests[0].path == "http://hook.test/x?y=z"


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        *((status, DeliveryOutcome.MISCONFIGURED) for status in (400, 403, 407, 410)),
        *((status, DeliveryOutcome.TRANSIENT) for status in (429, 502, 503, 504)),
    ],
)
def test_proxy_error_is_not_an_answer_of_the_receiver(authority, status, answer):
    """The alert is kept, because the proxy's answer says nothing about it and nothing was sent."""
    with HttpDouble(otherwise=reply(status)) as proxy:
        error = refusal(authority, proxy.url)

    assert (error.answer, error.may_have_arrived) == (answer, False)
    assert str(error) == f"https://hook.test was not reached, the proxy answered {status}"


def test_missing_proxy_is_an_outage(authority):
    with closed_port() as port:
        error = refusal(authority, f"http://127.0.0.1:{port}")

    assert (error.answer, error.may_have_arrived) == (DeliveryOutcome.TRANSIENT, False)
    assert "the proxy did not answer: ConnectionRefusedError" in str(error)


def test_dripping_proxy_cannot_hold_up_a_post(authority):
    with HttpDouble(otherwise=drip(b"HTTP/1.1 200 OK\r\nX-Long: ")) as proxy:
        error = ended(lambda: refusal(authority, proxy.url, total_seconds=0.5))

    assert error.answer is DeliveryOutcome.TRANSIENT


def test_server_behind_a_proxy_must_be_trusted(authority, proxy, tmp_path):
    error = refusal(Authority(tmp_path), proxy.url)

    assert error.answer is DeliveryOutcome.MISCONFIGURED
    assert "https://hook.test is not trusted" in str(error)


def test_proxy_of_the_environment_is_used(authority, target, proxy, monkeypatch):
    """Unless NO_PROXY or the settings say otherwise."""
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    poster(authority).post(b"{}")
    assert len(target.requests) == 1

    options = HttpOptions(proxy_url="http://here:1")
    assert set(options.proxies(TARGET).values()) == {"http://here:1"}
    monkeypatch.setenv("NO_PROXY", "hook.test")
    assert HttpOptions().proxies(TARGET) == {}


def test_unusable_proxy_of_the_environment_is_a_misconfiguration(authority, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy:1080")
    with pytest.raises(DeliveryError) as caught:
        poster(authority).post(b"{}")

    assert caught.value.answer is DeliveryOutcome.MISCONFIGURED


@pytest.mark.parametrize("host", ["127.0.0.1:9093", "localhost:9093", "[::1]:9093"])
def test_local_servers_are_reached_directly(host, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    for options in (HttpOptions(), HttpOptions(proxy_url="http://proxy:3128")):
        assert options.proxies(f"http://{host}/x") == {}


def test_no_secret_of_the_connection_is_shown(authority, caplog):
    with HttpDouble(otherwise=reply(407)) as proxy, caplog.at_level(logging.DEBUG):
        url = proxy.url.replace("//", "//me:hunter2@")
        error = refusal(authority, url)

    assert "hunter2" not in f"{error!r}{caplog.text}{HttpOptions(proxy_url=url)}"
    assert "B0000SECRET" not in f"{error!r}{caplog.text}"
