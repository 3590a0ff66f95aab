"""Checks the URLs that alerts are posted to. Pure."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

import requests


def public_part(url: str, *, setting: str, allow_http: bool = False) -> str:
    """Check ``url`` and return what of it may be shown: scheme, host and port.

    Userinfo, path and query stay hidden: the path of a Slack-like webhook is its secret.

    Raises:
        ValueError: no such URL can be posted to; the message names ``setting``.

    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        requests.Request("POST", url).prepare()
    except ValueError:
        # The original message can quote a password that was taken for a port.
        raise ValueError(f"{setting} must be an https:// URL with a host") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError(f"{setting} must be an https:// URL with a host")
    shown = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{f':{port}' if port else ''}"
    if is_readable(url) and not allow_http:
        raise ValueError(
            f"{setting} must be https:// for another machine ({shown}); "
            "allow_http permits plain http:// where the network is trusted"
        )
    return shown


def is_readable(url: str) -> bool:
    """Whether the network can read what is sent to ``url``: another machine, without TLS."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine, by name or address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
