"""Which Host names a server on loopback accepts. Pure.

A page in a user's browser can point its own host name at 127.0.0.1 and read from there (DNS
rebinding). The Host header then still holds that name.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

LOCAL_NAMES = ("localhost", "internal")
"""Names that nobody can register: RFC 6761; ``.internal`` is reserved by ICANN."""


def is_loopback(address: str) -> bool:
    """Whether an IP address belongs to this machine only."""
    return ip_address(address).is_loopback


def is_own_name(host: str, own: str) -> bool:
    """Whether the Host header ``host`` names this machine or ``own``, the configured name.

    IP addresses are accepted, because rebinding needs a name.
    """
    try:
        name = (urlsplit(f"//{host.strip()}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if (
        name in {own.lower(), socket.gethostname().lower()}
        or name.rpartition(".")[2] in LOCAL_NAMES
    ):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
