"""Who is trusted, and who we are: real certificates on loopback."""

import re
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest
from support.http_double import HttpDouble, raw, reply
from support.tls import Authority

from querypulse.alerting.receivers.answer import DeliveryOutcome
from querypulse.alerting.receivers.http import HttpError, HttpPoster
from querypulse.alerting.receivers.http_options import HttpOptions
from querypulse.alerting.receivers.secret import Secret

NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


def post(url, body=b"{}", **options):
    total = options.pop("total_seconds", 5.0)
    poster = HttpPoster(
        Secret(url), setting="webhook_url", http=HttpOptions(**options), total_seconds=total
    )
    try:
        return poster.post(body, NOW)
    finally:
        poster.close()


def refusal(url, **options):
    with pytest.raises(HttpError) as caught:
        post(url, **options)
    return caught.value


def test_an_authority_of_our_own_is_trusted_when_it_is_named(authority):
    with HttpDouble(reply(200, body=b"ok"), tls=authority.server()) as double:
        assert post(double.url, ca_file=authority.ca_file) == b"ok"


def test_an_unknown_authority_is_a_fault_of_the_configuration(authority):
    """No body has left, and no haste helps."""
    with HttpDouble(tls=authority.server()) as double:
        error = refusal(double.url)

        assert error.answer is DeliveryOutcome.MISCONFIGURED
        assert not error.may_have_arrived
        assert "is not trusted: SSLCertVerificationError (unable to get local" in str(error)
        assert double.requests == []


def test_a_certificate_for_another_name_is_not_trusted(authority):
    with HttpDouble(tls=authority.server("hook.test")) as double:
        error = refusal(double.url, ca_file=authority.ca_file)

    assert error.answer is DeliveryOutcome.MISCONFIGURED
    assert re.search("is not trusted: .*(is not valid for|is for another name)", str(error))


def test_a_client_certificate_is_shown_to_who_asks(authority):
    with HttpDouble(tls=authority.server(client_needed=True)) as double:
        post(
            double.url,
            ca_file=authority.ca_file,
            client_cert_file=authority.cert_file,
            client_key_file=authority.key_file,
        )

        assert len(double.requests) == 1


def test_a_missing_client_certificate_is_a_fault_of_the_configuration(authority):
    """TLS 1.2 says so during the handshake."""
    context = authority.server(client_needed=True)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with HttpDouble(tls=context) as double:
        error = refusal(double.url, ca_file=authority.ca_file)

        assert error.answer is DeliveryOutcome.MISCONFIGURED
        assert double.requests == []


def test_a_missing_client_certificate_is_never_taken_for_a_delivery(authority):
    """TLS 1.3 says so after the handshake, where a reset may overtake the words."""
    with HttpDouble(tls=authority.server(client_needed=True)) as double:
        error = refusal(double.url, ca_file=authority.ca_file)

        assert error.answer in {DeliveryOutcome.MISCONFIGURED, DeliveryOutcome.TRANSIENT}
        assert double.requests == []


def test_a_place_that_speaks_no_tls_is_a_fault_of_the_configuration():
    with HttpDouble() as double:
        error = refusal(double.url.replace("http:", "https:"))

    assert error.answer is DeliveryOutcome.MISCONFIGURED


def test_a_handshake_that_breaks_off_may_succeed_later(authority):
    """A server that restarts breaks off so."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        hang_up = threading.Thread(target=lambda: [server.accept()[0].close() for _ in range(3)])
        hang_up.start()
        error = refusal(f"https://127.0.0.1:{server.getsockname()[1]}", ca_file=authority.ca_file)
        hang_up.join()

    assert error.answer is DeliveryOutcome.TRANSIENT


def test_a_handshake_that_hangs_ends_by_the_deadline(authority):
    with socket.create_server(("127.0.0.1", 0)) as server:
        began = time.monotonic()
        url = f"https://127.0.0.1:{server.getsockname()[1]}"
        error = refusal(url, ca_file=authority.ca_file, total_seconds=0.4)

    assert error.answer is DeliveryOutcome.TRANSIENT
    assert time.monotonic() - began < 1.5


def test_an_answer_that_breaks_off_within_tls_may_have_arrived(authority):
    with HttpDouble(otherwise=raw(b"HTTP/1.1 2"), tls=authority.server()) as double:
        error = refusal(double.url, ca_file=authority.ca_file)

    assert (error.answer, error.may_have_arrived) == (DeliveryOutcome.TRANSIENT, True)


class Deaf(HttpDouble):
    """Shakes hands, and reads nothing after."""

    def finish_request(self, request, client_address):
        request.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        if self.tls is not None:
            request = self.secure(request)
        self.closing.wait()


@pytest.mark.parametrize("secured", [False, True], ids=["http", "https"])
def test_a_server_that_does_not_read_cannot_hold_a_post(authority, secured):
    """The deadline counts for all records of a large body together."""
    with Deaf(tls=authority.server() if secured else None) as double:
        began = time.monotonic()
        body = b"x" * 16_000_000
        with pytest.raises(HttpError) as caught:
            post(double.url, body, ca_file=authority.ca_file, total_seconds=0.5)

        assert time.monotonic() - began < 1.5
        assert caught.value.answer is DeliveryOutcome.TRANSIENT


def test_a_slow_reader_gets_a_large_body_whole(authority):
    """What goes in pieces arrives as one."""
    with HttpDouble(tls=authority.server()) as double:
        body = bytes(range(256)) * 4000
        post(double.url, body, ca_file=authority.ca_file)

        assert double.requests[0].body == body


def test_a_file_that_vanished_later_is_a_fault_of_the_configuration(authority, tmp_path):
    bundle = tmp_path / "ca.pem"
    bundle.write_text(Path(authority.ca_file).read_text())
    with HttpDouble(tls=authority.server()) as double:
        poster = HttpPoster(
            Secret(double.url), setting="webhook_url", http=HttpOptions(ca_file=str(bundle))
        )
        bundle.unlink()
        with pytest.raises(HttpError) as missing:
            poster.post(b"{}", NOW)
        bundle.write_text("no certificate\n")
        with pytest.raises(HttpError) as garbage:
            poster.post(b"{}", NOW)
        bundle.write_text(Path(authority.ca_file).read_text())
        poster.post(b"{}", NOW)

        assert missing.value.answer is garbage.value.answer is DeliveryOutcome.MISCONFIGURED
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
def test_options_that_cannot_be_used_are_refused_at_the_start(options, says):
    with pytest.raises(ValueError) as caught:
        HttpPoster(Secret("https://x"), setting="webhook_url", http=HttpOptions(**options))

    assert str(caught.value).startswith(says)
    assert "hunter2" not in str(caught.value)


def test_a_key_that_does_not_fit_its_certificate_is_refused_at_the_start(authority, tmp_path):
    other = Authority(tmp_path)
    options = {"client_cert_file": authority.cert_file, "client_key_file": other.key_file}
    with pytest.raises(ValueError, match=r"client_cert_file .* with client_key_file"):
        HttpOptions(**options).check()


def test_a_key_under_a_password_is_refused_without_asking_for_it(authority, tmp_path):
    """OpenSSL would ask the terminal, and wait."""
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
