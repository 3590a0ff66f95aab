"""Checks whether our own network works: tries to connect to other hosts."""

from __future__ import annotations

import socket
from collections.abc import Iterable

CONNECT_SECONDS = 3.0

Host = tuple[str, int]


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
