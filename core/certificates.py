"""PEM files of certificates and keys: what is wrong with one, in place of OpenSSL's words."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

MOST_BYTES = 10_000_000
"""A bundle of all public authorities has 250 KB."""
CERTIFICATES = "allowed: certificates in PEM (-----BEGIN CERTIFICATE-----)"
KEY = "allowed: a private key in PEM (-----BEGIN PRIVATE KEY-----), not encrypted"
_CERTIFICATE = re.compile(rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----")
_WHOLE = re.compile(r"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")
_DER = b"\x30"
_JAVA = b"\xfe\xed\xfe\xed"


class CertificateError(OSError, ValueError):
    """A file cannot be used; the message has its path, what is wrong and what is allowed."""


def load_own(
    context: ssl.SSLContext,
    cert: str,
    key: str | None,
    names: tuple[str, str],
) -> None:
    """Load who we are into ``context``; without ``key``, the certificate's file holds it.

    ``names`` are those of the settings or options that name the files.

    Raises:
        CertificateError: they cannot be used.

    """
    cert_name, key_name = names
    try:
        # Without a password, OpenSSL would ask the terminal for that of an encrypted key.
        context.load_cert_chain(cert, key, password="")
    except OSError as error:
        if wrong := _wrong_certificates(cert):
            raise CertificateError(f"{cert_name} {cert}: {wrong}; {CERTIFICATES}") from None
        holder = f"{cert_name} {cert}" if key is None else f"{key_name} {key}"
        if wrong := _wrong_key(key or cert):
            raise CertificateError(f"{holder}: {wrong}; {KEY}") from None
        files = holder if key is None else f"{cert_name} {cert} with {holder}"
        if "MISMATCH" in str(error):
            wrong = "the key is not that of the certificate; allowed: those of one pair"
        raise CertificateError(f"{files}: {wrong or f'one is damaged; {KEY}'}") from None


def load_authorities(context: ssl.SSLContext, path: str, name: str) -> None:
    """Load the authorities to trust; ``name`` is that of the setting or option.

    Raises:
        CertificateError: the file cannot be used.

    """
    try:
        context.load_verify_locations(path)
    except OSError:
        wrong = _wrong_certificates(path) or "a certificate in it is damaged"
        raise CertificateError(f"{name} {path}: {wrong}; {CERTIFICATES}") from None


def _wrong_certificates(path: str) -> str:
    content = _read(path)
    if isinstance(content, str):
        return content
    if _CERTIFICATE.search(content):
        return ""
    if b"PRIVATE KEY-----" in content:
        return "it holds a private key and no certificate"
    if b"CERTIFICATE REQUEST-----" in content:
        return "it holds a request for a certificate (CSR)"
    return _no_pem(content)


def _wrong_key(path: str) -> str:
    content = _read(path)
    if isinstance(content, str):
        return content
    if b"ENCRYPTED" in content:
        return "its key is encrypted, and nobody can type its password here"
    if b"PRIVATE KEY-----" in content:
        return ""
    if _CERTIFICATE.search(content):
        return "it holds a certificate and no private key"
    return _no_pem(content)


def _no_pem(content: bytes) -> str:
    if content.startswith(_JAVA):
        return "it is a Java keystore, not PEM"
    if content.startswith(_DER):
        return "it is binary (DER or PKCS #12), not PEM"
    return "it is not PEM"


def _read(path: str) -> bytes | str:
    """The content of a file, or why it cannot be used."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES)
    except OSError as error:
        return error.strerror or str(error)
    return content or "it is empty"


# -- expiry -------------------------------------------------------------------------------------


def expiry(path: str) -> datetime | None:
    """When the first certificate in a PEM file expires; None if it cannot be read."""
    content = _read(path)
    text = "" if isinstance(content, str) else content.decode("ascii", "replace")
    pem = _WHOLE.search(text)
    if pem is None:
        return None
    try:
        return _not_after(ssl.PEM_cert_to_DER_cert(pem[0]))
    except (ValueError, IndexError, StopIteration):
        return None


def _not_after(der: bytes) -> datetime:
    """``Certificate.tbsCertificate.validity.notAfter`` (RFC 5280, 4.1)."""
    _, certificate = next(_elements(der))
    _, signed = next(_elements(certificate))
    version = 0xA0
    fields = [content for tag, content in _elements(signed) if tag != version]
    validity = fields[3]
    _, (tag, text) = _elements(validity)
    form = "%y%m%d%H%M%SZ" if tag == 0x17 else "%Y%m%d%H%M%SZ"  # noqa: PLR2004 - UTCTime
    return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=timezone.utc)


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element of DER (X.690, 8.1)."""
    while der:
        size, start = der[1], 2
        if size > 0x7F:  # noqa: PLR2004 - the long form
            start += size & 0x7F
            size = int.from_bytes(der[2:start], "big")
        yield der[0], der[start : start + size]
        der = der[start + size :]
