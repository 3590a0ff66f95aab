"""Which names a server on loopback answers to. Pure.

A page in somebody's browser can point a name of its own at 127.0.0.1 and read what is there
(DNS rebinding). The Host header then still holds that name.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

LOCAL_NAMES = ("localhost", "internal")
"""Names that no stranger can register: RFC 6761; ``.internal`` is reserved by ICANN."""


def is_loopback(address: str) -> bool:
    """Whether an IP address is of this machine only."""
    return ip_address(address).is_loopback


def is_own_name(host: str, own: str) -> bool:
    """Whether the Host header ``host`` names this machine, or ``own``, as the server is set.

    An IP address passes: rebinding needs a name.
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
