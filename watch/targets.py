"""Which drivers to watch, and which hosts prove that our own network works."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from requests.utils import select_proxy

from ..alerting.receivers.receiver import is_loopback
from ..core.redaction import Redactor
from ..core.text import HOST, shorten
from ..exporter.pages import LIVEZ, WATCH
from ..settings.receivers import configured
from ..settings.settings import Settings, SettingsError
from ..sidecar.assemble import http_options
from .client import Endpoint

# -- targets ----------------------------------------------------------------------------------
# Which drivers to watch: URLs, a file of URLs, DNS names.


PORT = Settings().http_port
"""Of a host that is given without scheme and port."""
ALLOWED = f"a host, which is polled at port {PORT}; or http:// or https://, a host and a port"
_HOST = re.compile(HOST)
_HEAD = re.compile(r"(?:[A-Za-z]*:)?/{0,2}[^/?#]*")
"""Scheme and host."""
MOST_SHOWN = 80
_COMMENT = re.compile(r"(?:^|\s)#.*")
PAGES = ("", "/status", "/metrics", "/readyz", LIVEZ, *WATCH)


class Targets:
    """The endpoints to watch; each call of ``now`` reads the file and resolves the names again.

    Raises:
        SettingsError: there is nothing to watch, a URL is not allowed, or the file cannot be read.

    """

    def __init__(self, urls: Iterable[str], file: str | None, names: Iterable[str]) -> None:
        self._urls = [endpoint_of(url, "the command line") for url in urls]
        self._file = Path(file) if file is not None else None
        self._names = [endpoint_of(name, "--dns") for name in names]
        self._resolved: dict[Endpoint, list[Endpoint]] = {}
        self._from_file()
        if not (self._urls or self._file or self._names):
            raise SettingsError("nothing to watch: give URLs, --targets FILE or --dns URL")

    def now(self) -> list[Endpoint]:
        """All endpoints; resolving the names may take a while.

        A name that cannot be resolved keeps its last addresses.

        Raises:
            SettingsError: the file no longer exists, or one of its lines is not a URL.

        """
        endpoints = [*self._urls, *self._from_file()]
        for name in self._names:
            self._resolved[name] = addresses(name) or self._resolved.get(name, [])
            # A name that never had an address has an endpoint, so that its driver counts as down.
            endpoints += self._resolved[name] or [name]
        return list(dict.fromkeys(endpoints))

    def _from_file(self) -> list[Endpoint]:
        if self._file is None:
            return []
        try:
            lines = self._file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"--targets {self._file}: {error}") from None
        texts = [(number, _COMMENT.sub("", line).strip()) for number, line in enumerate(lines, 1)]
        return [endpoint_of(text, f"{self._file} line {number}") for number, text in texts if text]


def endpoint_of(url: str, where: str, own_port: int = PORT) -> Endpoint:
    """The endpoint of a URL, without its path, or of a host, at our own port.

    Raises:
        SettingsError: it is not the URL of a driver, or holds a password.

    """
    if "@" in url:
        raise SettingsError(f"{where}: no user or password in a URL; a token goes to --token-file")
    try:
        return _endpoint(url, own_port)
    except ValueError as error:
        shown = f"{_without_path(url)!r} {error}"
        raise SettingsError(f"{where}: {shown}; allowed: {ALLOWED}") from None


def _endpoint(url: str, own_port: int) -> Endpoint:
    """An endpoint of a URL without user; a ``ValueError`` says what is wrong with the URL."""
    has_scheme = "://" in url
    try:
        parts = urlsplit(url if has_scheme else f"http://{url}")
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        # Its message may hold a part of the URL.
        raise ValueError(_no_host(url)) from None
    # urlsplit drops some white space.
    is_printed = url.isprintable() and " " not in url
    if parts.scheme not in {"http", "https"} or not is_printed or not _HOST.match(host):
        raise ValueError(_no_host(url))
    if port == 0:
        raise ValueError("has port 0, where nothing listens")
    if parts.query or parts.fragment:
        raise ValueError("has a query or a fragment, which is not sent: name the driver without it")
    if parts.path.rstrip("/") not in PAGES:
        raise ValueError(
            "has a path, and only the root of a server is polled: name the driver without a path"
        )
    shown = f"[{host}]" if ":" in host else host
    port = own_port if port is None and not has_scheme else port
    base = f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}"
    return Endpoint(base, loopback=is_loopback(host))


def _no_host(url: str) -> str:
    """What is wrong with a URL without a host."""
    if "," in url:
        return "has a comma: give each driver as an argument, or a line, of its own"
    authority = url.rpartition("://")[2].partition("/")[0]
    if authority.count(":") > 1 and "[" not in authority:
        return "is not a URL to watch: an IPv6 address has brackets, such as [::1]"
    return "is not a URL to watch"


def _without_path(url: str) -> str:
    """A wrong URL, of which no password and no path of a webhook may be shown."""
    shown = _HEAD.match(url)
    head = shown[0] if shown is not None else ""
    return Redactor().text(shorten(head, MOST_SHOWN)) + ("/..." if head != url else "")


def polled(endpoint: Endpoint) -> str:
    """What is polled, for the log; a port that is not given is named."""
    parts = urlsplit(endpoint.url)
    base = endpoint.url if parts.port else f"{endpoint.url}:{PORTS[parts.scheme]}"
    line = f"{base}/status{f' ({endpoint.address})' if endpoint.address else ''}"
    if parts.port or parts.scheme == "https":
        return line
    return f"{line}: the URL has no port, and a driver listens on {PORT} (http_port)"


def addresses(name: Endpoint) -> list[Endpoint]:
    """One endpoint for each address that the name has now; none if it cannot be resolved."""
    host = urlsplit(name.url).hostname or ""
    try:
        entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    unique = sorted({str(entry[4][0]) for entry in entries})
    return [Endpoint(name.url, address, is_loopback(address)) for address in unique]


# -- hosts ------------------------------------------------------------------------------------
# The hosts that prove that our own network works: those of the receivers.
#
# A proxy takes the place of the receivers behind it, also if the environment names it.


CONNECT_SECONDS = 3.0
PORTS = {"http": 80, "https": 443}

Host = tuple[str, int]


def receiver_hosts(settings: Settings) -> tuple[Host, ...]:
    """The hosts of the receivers or their proxies, without this machine, which proves nothing."""
    hosts: list[Host] = []
    for receiver in configured(settings):
        proxies = http_options(receiver.given, settings).proxies
        for url in receiver.given.targets():
            with suppress(ValueError):  # Not a URL: the receiver reports it.
                parts = urlsplit(url)
                # An SMTP server is not reached through a proxy for HTTP.
                proxy = select_proxy(url, proxies(url)) if parts.scheme in PORTS else None
                if proxy:
                    # It may be given by host and port only.
                    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
                host = parts.hostname
                port = parts.port or PORTS.get(parts.scheme)
                if host and port and not is_loopback(host):
                    hosts.append((host, port))
    return tuple(dict.fromkeys(hosts))


def answers(hosts: Iterable[Host]) -> bool:
    """Whether one of these hosts accepts or refuses a connection: either proves the network."""
    for host in hosts:
        try:
            socket.create_connection(host, timeout=CONNECT_SECONDS).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            continue
        return True
    return False
