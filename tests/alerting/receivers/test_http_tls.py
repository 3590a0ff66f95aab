"""Trusted servers and client certificates, with real certificates on loopback."""

import re
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import pytest
from support.ending import ended
from support.http_double import HttpDouble
from support.patience import PATIENCE_SECONDS
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
        (lambda authority: authority.server("hook.test"), True, "is not trusted: .*(not valid for|for another name)"),
        pytest.param(
            partial(server_of, not_after=datetime.now(timezone.utc) - timedelta(days=1)), True,
            "is not trusted: SSLCertVerificationError .certificate has expired",
            marks=pytest.mark.fault("Receivers", "A receiver's certificate has expired",
                                    "Nothing is sent; the error says why; the alert is kept and retried"),
        ),
    ],
    ids=["unknown authority", "another name", "expired"],
)  # fmt: skip
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


def test_interrupted_handshake_is_transient(authority):
    """A restarting server interrupts a handshake like this."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        hang_up = threading.Thread(target=lambda: server.accept()[0].close())  # noqa: PLW0108 - accept waits
        hang_up.start()
        error = refusal(f"https://127.0.0.1:{server.getsockname()[1]}", ca_file=authority.ca_file)
        hang_up.join()

    assert error.answer is DeliveryOutcome.TRANSIENT


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
