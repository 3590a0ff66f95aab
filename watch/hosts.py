"""The hosts that prove that our own network works: those of the receivers.

A proxy takes the place of the receivers behind it, also if the environment names it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from urllib.parse import urlsplit

from requests.utils import select_proxy

from ..alerting.receivers.address import is_loopback
from ..settings.configured import configured
from ..settings.receivers_from_settings import http_options
from ..settings.settings import Settings

CONNECT_SECONDS = 3.0
PORTS = {"http": 80, "https": 443}

Host = tuple[str, int]


def receiver_hosts(settings: Settings) -> tuple[Host, ...]:
    """The hosts of the receivers or their proxies, without this machine, which proves nothing."""
    hosts = (_host(url) for url in _urls(settings))
    return tuple(dict.fromkeys(host for host in hosts if host is not None))


def _urls(settings: Settings) -> Iterator[str]:
    for one in configured(settings):
        options = http_options(one.given, settings)
        for url in one.kind.urls(one.given):
            with suppress(ValueError):  # Not a URL: the receiver reports it.
                # An SMTP server is not reached through a proxy for HTTP.
                proxied = urlsplit(url).scheme in PORTS
                proxy = select_proxy(url, options.proxies(url)) if proxied else None
                yield url if proxy is None else _with_scheme(proxy)


def _with_scheme(proxy: str) -> str:
    """Add the scheme that requests assumes for a proxy given by host and port only."""
    return proxy if "://" in proxy else f"http://{proxy}"


def _host(url: str) -> Host | None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        return None
    return (host, port) if host and port and not is_loopback(host) else None


def answers(hosts: Iterable[Host]) -> bool:
    """Whether one of these hosts accepts or refuses a connection: either proves the network."""
    return any(_answers(host) for host in hosts)


def _answers(host: Host) -> bool:
    try:
        with socket.create_connection(host, timeout=CONNECT_SECONDS):
            return True
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
