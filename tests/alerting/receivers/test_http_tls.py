"""Posts over TLS, and through proxies, with real certificates on loopback."""

import logging
import re
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import pytest
from support.http_double import Answer, DoubleHandler, HttpDouble, closed_port, drip, reply
from support.patience import PATIENCE_SECONDS, ended
from support.tls import Authority

from querypulse.alerting.receivers.http import HttpPoster
from querypulse.alerting.receivers.receiver import DeliveryError, HttpOptions
from querypulse.core.secret import Secret
from querypulse.core.states import DeliveryOutcome


def post(url, body=b"{}", **options):
    total = options.pop("total_seconds", PATIENCE_SECONDS)
    poster = HttpPoster(
        Secret(url), setting="webhook_url", http=HttpOptions(**options), total_seconds=total
    )
    try:
        return poster.post(body)
    finally:
        poster.close()


def refusal(url, **options):
    with pytest.raises(DeliveryError) as caught:
        post(url, **options)
    return caught.value


def server_of(authority, newest=ssl.TLSVersion.TLSv1_3, **options):
    context = authority.server(**options)
    context.maximum_version = newest
    return context


@pytest.mark.parametrize(
    ("server", "trusts", "says"),
    [
        (server_of, False, "is not trusted: SSLCertVerificationError .unable to get local"),
        (
            lambda authority: authority.server("hook.test"),
            True,
            "is not trusted: .*(not valid for|for another name)",
        ),
        pytest.param(
            partial(server_of, not_after=datetime.now(timezone.utc) - timedelta(days=1)),
            True,
            "is not trusted: SSLCertVerificationError .certificate has expired",
            marks=pytest.mark.fault(
                "Receivers",
                "A receiver's certificate has expired",
                "Nothing is sent; the error says why; the alert is kept and retried",
            ),
        ),
    ],
    ids=["unknown authority", "another name", "expired"],
)
def test_server_that_tls_does_not_accept_is_a_misconfiguration(authority, server, trusts, says):
    """Nothing was sent, and quick retries do not help."""
    with HttpDouble(tls=server(authority)) as double:
        options = {"ca_file": authority.ca_file} if trusts else {}
        error = refusal(double.url.replace("http:", "https:"), **options)

        assert (error.answer, error.may_have_arrived) == (DeliveryOutcome.MISCONFIGURED, False)
        assert re.search(says, str(error))
        assert double.requests == []


@pytest.mark.parametrize(
    "server",
    [
        lambda authority: authority.server(client_needed=True),
        partial(server_of, client_needed=True, newest=ssl.TLSVersion.TLSv1_2),
        lambda _: None,
    ],
    ids=["no client certificate", "no client certificate, TLS 1.2", "no TLS"],
)
def test_failed_handshake_never_counts_as_delivered(authority, server):
    with HttpDouble(tls=server(authority)) as double:
        error = refusal(double.url.replace("http:", "https:"), ca_file=authority.ca_file)

        assert error.answer is DeliveryOutcome.TRANSIENT
        assert double.requests == []


def test_client_certificate_is_sent_on_request(authority):
    with HttpDouble(tls=authority.server(client_needed=True)) as double:
        post(
            double.url,
            ca_file=authority.ca_file,
            client_cert_file=authority.cert_file,
            client_key_file=authority.key_file,
        )

        assert len(double.requests) == 1


@pytest.mark.fault(
    "Receivers", "A TLS handshake that never ends", "The attempt ends at its deadline"
)
def test_hanging_handshake_ends_at_the_deadline(authority):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"https://127.0.0.1:{server.getsockname()[1]}"
        error = ended(lambda: refusal(url, ca_file=authority.ca_file, total_seconds=0.4))

    assert error.answer is DeliveryOutcome.TRANSIENT


def test_closing_ends_a_hanging_handshake(authority):
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        http = HttpOptions(ca_file=authority.ca_file)
        url = Secret(f"https://127.0.0.1:{server.getsockname()[1]}")
        poster = HttpPoster(url, setting="webhook_url", http=http)
        post = pool.submit(poster.post, b"{}")
        connection, _ = server.accept()
        with connection:
            connection.recv(1)  # the handshake has begun
            poster.close()
            with pytest.raises(DeliveryError):
                post.result(PATIENCE_SECONDS)


class NonReading(HttpDouble):
    """Completes the handshake, and reads nothing afterwards."""

    def finish_request(self, request, client_address):
        request.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        if self.tls is not None:
            request = self.secure(request)
        self.closing.wait()


@pytest.mark.fault("Receivers", "A receiver that reads nothing", "The attempt ends at its deadline")
@pytest.mark.parametrize("secured", [False, True], ids=["http", "https"])
def test_server_that_does_not_read_cannot_hold_up_a_post(authority, secured):
    """The deadline covers all records of a large body together."""
    with NonReading(tls=authority.server() if secured else None) as double:
        body = b"x" * 16_000_000
        options = {"ca_file": authority.ca_file, "total_seconds": 0.5}
        with pytest.raises(DeliveryError) as caught:
            ended(lambda: post(double.url, body, **options))

        assert caught.value.answer is DeliveryOutcome.TRANSIENT


def test_file_that_is_missing_for_a_while_keeps_the_page(authority, tmp_path):
    bundle = tmp_path / "ca.pem"
    bundle.write_text(Path(authority.ca_file).read_text())
    with HttpDouble(tls=authority.server()) as double:
        poster = HttpPoster(
            Secret(double.url), setting="webhook_url", http=HttpOptions(ca_file=str(bundle))
        )
        bundle.unlink()
        with pytest.raises(DeliveryError):
            poster.post(b"{}")
        bundle.write_text("no certificate\n")
        with pytest.raises(DeliveryError, match="NO_CERTIFICATE"):
            poster.post(b"{}")
        bundle.write_text(Path(authority.ca_file).read_text())
        poster.post(b"{}")

        assert len(double.requests) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ca_file": "/nowhere/ca.pem"}, "ca_file /nowhere/ca.pem: No such file"),
        ({"client_cert_file": "/nowhere/c.pem"}, "client_cert_file /nowhere/c.pem: No such file"),
        ({"client_key_file": "/nowhere/c.key"}, "client_key_file needs client_cert_file"),
        ({"proxy_url": "socks5://proxy:1080"}, "proxy_url must be"),
        ({"proxy_url": "proxy:3128"}, "proxy_url must be"),
        ({"proxy_url": "http://me:hunter2@"}, "proxy_url must be"),
        ({"proxy_url": "http://me:hunter2/@proxy"}, "proxy_url must be"),
        ({"proxy_url": ""}, "proxy_url must be"),
    ],
)
def test_unusable_options_are_rejected_at_start(options, says):
    with pytest.raises(ValueError) as caught:
        HttpOptions(**options).check()

    assert str(caught.value).startswith(says)
    assert "hunter2" not in str(caught.value)


def test_key_that_does_not_match_its_certificate_is_rejected_at_start(authority, tmp_path):
    other = Authority(tmp_path)
    options = {"client_cert_file": authority.cert_file, "client_key_file": other.key_file}
    with pytest.raises(ValueError, match=r"client_cert_file .* with client_key_file"):
        HttpOptions(**options).check()


def test_encrypted_key_is_rejected_without_a_prompt(authority, tmp_path):
    """OpenSSL would prompt on the terminal and wait."""
    from cryptography.hazmat.primitives import serialization as pem

    key = pem.load_pem_private_key(Path(authority.key_file).read_bytes(), None)
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_bytes(
        key.private_bytes(
            pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.BestAvailableEncryption(b"secret")
        )
    )
    with pytest.raises(ValueError, match="client_key_file"):
        HttpOptions(client_cert_file=authority.cert_file, client_key_file=str(encrypted)).check()


def test_verification_cannot_be_switched_off():
    assert HttpOptions().verify is HttpOptions(ca_file="").verify is True


# -- proxies --------------------------------------------------------------------------------------


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


def port_of(double: HttpDouble) -> int:
    return double.server_address[1]


def _relay(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
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


def through(authority, proxy_url, *, url=TARGET, **options):
    """The answer of a post through a proxy."""
    return post(url, ca_file=authority.ca_file, proxy_url=proxy_url, **options)


def refusal_through(authority, proxy_url, **options):
    return refusal(TARGET, ca_file=authority.ca_file, proxy_url=proxy_url, **options)


def test_https_uses_a_tunnel_that_reveals_only_the_host_name_to_the_proxy(authority, target, proxy):
    """The password of the proxy goes only to the proxy."""
    url = proxy.url.replace("//", "//me:hunter2@")
    http = HttpOptions(ca_file=authority.ca_file, proxy_url=url)
    sent = HttpPoster(Secret(TARGET), setting="webhook_url", http=http)
    assert [sent.post(b"1"), sent.post(b"2")] == [b"ok", b"ok"]

    assert [(one.method, one.path) for one in proxy.requests] == [("CONNECT", "hook.test:443")] * 2
    assert [one.body for one in target.requests] == [b"1", b"2"]
    assert proxy.requests[0].headers["Proxy-Authorization"] == "Basic bWU6aHVudGVyMg=="
    assert target.requests[0].headers["Proxy-Authorization"] is None


def test_connection_to_the_proxy_may_use_tls(authority, target):
    # By its name: urllib3 before 1.26.7 refuses an address.
    tls = authority.server("localhost")
    with HttpDouble(otherwise=tunnel(port_of(target)), tls=tls) as proxy:
        assert through(authority, f"https://localhost:{port_of(proxy)}") == b"ok"

    assert len(target.requests) == 1


def test_plain_http_sends_the_full_url_to_the_proxy(authority):
    with HttpDouble(otherwise=reply(202)) as proxy:
        through(authority, proxy.url, url="http://hook.test/x?y=z", allow_http=True)

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
        error = refusal_through(authority, proxy.url)

    assert (error.answer, error.may_have_arrived) == (answer, False)
    assert str(error) == f"https://hook.test was not reached, the proxy answered {status}"


def test_missing_proxy_is_an_outage(authority):
    with closed_port() as port:
        error = refusal_through(authority, f"http://127.0.0.1:{port}")

    assert (error.answer, error.may_have_arrived) == (DeliveryOutcome.TRANSIENT, False)
    assert "the proxy did not answer: ConnectionRefusedError" in str(error)


def test_dripping_proxy_cannot_hold_up_a_post(authority):
    with HttpDouble(otherwise=drip(b"HTTP/1.1 200 OK\r\nX-Long: ")) as proxy:
        error = ended(lambda: refusal_through(authority, proxy.url, total_seconds=0.5))

    assert error.answer is DeliveryOutcome.TRANSIENT


def test_server_behind_a_proxy_must_be_trusted(authority, proxy, tmp_path):
    error = refusal_through(Authority(tmp_path), proxy.url)

    assert error.answer is DeliveryOutcome.MISCONFIGURED
    assert "https://hook.test is not trusted" in str(error)


def test_proxy_of_the_environment_is_used(authority, target, proxy, monkeypatch):
    """Unless NO_PROXY or the settings say otherwise."""
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    post(TARGET, ca_file=authority.ca_file)
    assert len(target.requests) == 1

    options = HttpOptions(proxy_url="http://here:1")
    assert set(options.proxies(TARGET).values()) == {"http://here:1"}
    monkeypatch.setenv("NO_PROXY", "hook.test")
    assert HttpOptions().proxies(TARGET) == {}


def test_unusable_proxy_of_the_environment_is_a_misconfiguration(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy:1080")

    assert refusal(TARGET).answer is DeliveryOutcome.MISCONFIGURED


@pytest.mark.parametrize("host", ["127.0.0.1:9093", "localhost:9093", "[::1]:9093"])
def test_local_servers_are_reached_directly(host, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    for options in (HttpOptions(), HttpOptions(proxy_url="http://proxy:3128")):
        assert options.proxies(f"http://{host}/x") == {}


def test_no_secret_of_the_connection_is_shown(authority, caplog):
    with HttpDouble(otherwise=reply(407)) as proxy, caplog.at_level(logging.DEBUG):
        url = proxy.url.replace("//", "//me:hunter2@")
        error = refusal_through(authority, url)

    assert "hunter2" not in f"{error!r}{caplog.text}{HttpOptions(proxy_url=url)}"
    assert "B0000SECRET" not in f"{error!r}{caplog.text}"
