"""Certificates and keys that cannot be used are explained; when one expires is known."""

from __future__ import annotations

import ssl
from datetime import datetime, timezone

import pytest
import trustme

from querypulse.core.certificates import CertificateError, expiry, load_own
from querypulse.settings.receivers import expired_certificates
from querypulse.sidecar import Settings

ENDED = datetime(2024, 2, 29, 12, 30, 15, tzinfo=timezone.utc)
LATE = datetime(2061, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


@pytest.fixture
def certificate(tmp_path):
    """Write a certificate with its key that expires then; returns its path."""

    def write(end):
        path = tmp_path / "own.pem"
        trustme.CA().issue_cert("a", not_after=end).private_key_and_cert_chain_pem.write_to_path(
            path
        )
        return str(path)

    return write


@pytest.mark.parametrize("end", [ENDED, LATE])
def test_end_of_a_certificate_is_read(certificate, end):
    """Until 2049 it is written with two digits of the year (RFC 5280, 4.1.2.5)."""
    assert expiry(certificate(end)) == end


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        b"\xff\xfe",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\n====\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nMIIB",
    ],
)
def test_what_is_no_certificate_has_no_end(tmp_path, content):
    (tmp_path / "a").write_bytes(content)

    assert expiry(str(tmp_path / "a")) is None
    assert expiry(str(tmp_path / "missing")) is None


def test_expired_certificate_is_named_and_refused_by_nobody(certificate):
    """The job starts: a restart at night must not fail because of it."""
    path = certificate(ENDED)
    settings = Settings(http_tls_cert_file=path, http_tls_key_file=path)
    load_own(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), path, path, ("cert", "key"))

    (note,) = expired_certificates(settings)
    assert note == f"http_tls_cert_file {path}: the certificate expired on 2024-02-29 12:30 UTC"


def test_certificate_that_lasts_is_not_named(certificate):
    path = certificate(LATE)

    assert expired_certificates(Settings(http_tls_cert_file=path, http_tls_key_file=path)) == []


def test_one_file_may_hold_certificate_and_key(certificate, tmp_path):
    load_own(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate(LATE), None, ("cert", "key"))
    (tmp_path / "only.pem").write_bytes(trustme.CA().cert_pem.bytes())

    with pytest.raises(CertificateError, match=r"^cert .*only\.pem: it holds a certificate and no"):
        load_own(
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            str(tmp_path / "only.pem"),
            None,
            ("cert", "key"),
        )
