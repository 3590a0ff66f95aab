"""How receivers are reached: proxies, trusted authorities, a certificate of our own."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

import msgspec
import requests.utils

from .address import is_loopback


class HttpOptions(msgspec.Struct, frozen=True):
    """Settings of one receiver's connections; every name is also a setting's.

    ``allow_http``: plain http to other hosts. ``proxy_url``: ``http://`` or ``https://``, never
    used for loopback; it goes before ``proxy_from_environment`` (``HTTPS_PROXY``, ``NO_PROXY``
    ...). ``ca_file``: a PEM bundle in place of the public authorities that ``certifi`` lists.
    ``client_cert_file``, ``client_key_file``: who we are; the certificate's file may hold both.
    The files are read again for each connection.
    """

    allow_http: bool = False
    proxy_url: str | None = None
    proxy_from_environment: bool = False
    ca_file: str | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None

    @property
    def verify(self) -> bool | str:
        """What requests takes for ``verify``: there is no way to switch it off."""
        return self.ca_file or True

    @property
    def cert(self) -> str | tuple[str, str] | None:
        """What requests takes for ``cert``."""
        if self.client_cert_file is not None and self.client_key_file is not None:
            return self.client_cert_file, self.client_key_file
        return self.client_cert_file

    def proxies(self, url: str) -> dict[str, str]:
        """The proxies on the way to ``url``, by its scheme."""
        if is_loopback(urlsplit(url).hostname or ""):
            return {}
        if self.proxy_url is not None:
            return {"http": self.proxy_url, "https": self.proxy_url}
        if self.proxy_from_environment:
            return dict(requests.utils.get_environ_proxies(url))
        return {}

    def __repr__(self) -> str:
        return f"HttpOptions(ca_file={self.ca_file!r}, ...)"  # the proxy's URL holds its password

    def check(self) -> None:
        """Try all that can be tried without a connection.

        Raises:
            ValueError: something cannot be used; the message names the setting.

        """
        if self.proxy_url is not None:
            _check_proxy(self.proxy_url)
        if self.ca_file is not None:
            _check_authorities(self.ca_file)
        if self.client_cert_file is not None:
            _check_certificate(self.client_cert_file, self.client_key_file)
        elif self.client_key_file is not None:
            raise ValueError("client_key_file needs client_cert_file")


def _check_proxy(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        # The URL is not shown: it may hold the proxy's password.
        raise ValueError("proxy_url must be an http:// or https:// URL with a host")


def _check_authorities(path: str) -> None:
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:
        raise ValueError(f"ca_file {path}: {error.strerror or error}") from None


def _check_certificate(cert: str, key: str | None) -> None:
    try:
        # Without a password given, OpenSSL would ask the terminal for that of an encrypted key.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key, password="")
    except OSError as error:
        files = cert if key is None else f"{cert} with client_key_file {key}"
        raise ValueError(f"client_cert_file {files}: {error.strerror or error}") from None
