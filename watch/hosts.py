"""The hosts that prove that the network works: those of the receivers.

A proxy takes the place of the receivers behind it, also if the environment names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

from requests.utils import select_proxy

from ..alerting.receivers.address import is_loopback
from ..settings.configured import configured
from ..settings.receivers_from_settings import http_options
from ..settings.settings import Settings
from .network import Host

PORTS = {"http": 80, "https": 443}


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
