"""Whether our own network works: somebody else is called, for a proof."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ...alerting.receivers.pagerduty import EVENTS_URL
from ..settings import Settings
from .targets import is_loopback

CONNECT_SECONDS = 3.0
PORTS = {"http": 80, "https": 443}

Host = tuple[str, int]


def answers(hosts: Iterable[Host]) -> bool:
    """Whether one of these hosts takes or refuses a connection: either proves the network."""
    for host in hosts:
        try:
            with socket.create_connection(host, timeout=CONNECT_SECONDS):
                return True
        except ConnectionRefusedError:
            return True
        except OSError:
            continue
    return False


def receiver_hosts(settings: Settings) -> tuple[Host, ...]:
    """Where the receivers are, or the proxy to them; none on this machine, which proves nothing."""
    urls = [settings.proxy_url] if settings.proxy_url else _urls(settings)
    hosts = (_host(url) for url in urls if url)
    return tuple(dict.fromkeys(host for host in hosts if host is not None))


def _urls(settings: Settings) -> list[str | None]:
    urls = [
        settings.webhook_url,
        _content(settings.webhook_url_file),
        settings.slack_webhook_url,
        _content(settings.slack_webhook_url_file),
        settings.heartbeat_url,
        _content(settings.heartbeat_url_file),
        *settings.alertmanager_urls,
    ]
    if settings.pagerduty_routing_key or settings.pagerduty_routing_key_file:
        urls.append(settings.pagerduty_url or EVENTS_URL)
    for receiver in settings.receivers:
        own = msgspec.structs.asdict(receiver)
        fallback = EVENTS_URL if "routing_key" in own else None
        urls += own.get("urls") or [own.get("url") or _content(own.get("url_file")) or fallback]
    return urls


def _content(path: str | None) -> str | None:
    """What a file of a secret URL holds; whether it is readable is for the receiver to say."""
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _host(url: str) -> Host | None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        return None
    return (host, port) if host and port and not is_loopback(host) else None
