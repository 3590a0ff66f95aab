"""All operations of a socket share one deadline; each address of a host gets a part of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from support.patience import PATIENCE_SECONDS, Clock

from querypulse.core import socket_deadline
from querypulse.core.socket_deadline import CONNECT_SECONDS, SocketDeadline

BLACK_HOLE = ("192.0.2.1", 80)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def resolving_to(monkeypatch, *addresses):
    """Let every name resolve to these addresses: pairs of family and address."""
    result = [(family, socket.SOCK_STREAM, 6, "", address) for family, address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: result)


@contextmanager
def connected(seconds: float) -> Iterator[socket.socket]:
    wire = SocketDeadline()
    with wire.within(seconds), wire.connect("driver", 80) as made:
        yield made


@pytest.mark.parametrize(
    ("seconds", "taken"), [(3600.0, CONNECT_SECONDS), (5.0, 2.5)], ids=["a step", "its share"]
)
def test_address_that_never_answers_leaves_time_for_the_next_one(
    monkeypatch, server, seconds, taken
):
    clock, there, connect = Clock(), server.getsockname(), socket.socket.connect

    def connect_in_vain(made, address):
        if address == BLACK_HOLE:
            clock.now += made.gettimeout()
            raise TimeoutError
        connect(made, address)

    monkeypatch.setattr(socket.socket, "connect", connect_in_vain)
    monkeypatch.setattr(socket_deadline, "time", SimpleNamespace(monotonic=clock))
    resolving_to(monkeypatch, (socket.AF_INET, BLACK_HOLE), (socket.AF_INET, there))

    with connected(seconds) as made:
        assert made.getpeername() == there
    assert clock.now == taken


def test_no_time_is_left(monkeypatch, server):
    resolving_to(monkeypatch, (socket.AF_INET, server.getsockname()))

    with pytest.raises(TimeoutError), connected(0.0):
        pass


@pytest.mark.fault(
    "Disk, port and mounts", "The kernel lacks IPv4 or IPv6", "The other one is used"
)
def test_address_family_that_the_kernel_lacks_is_skipped(monkeypatch, server):
    there = server.getsockname()
    resolving_to(monkeypatch, (socket.AF_APPLETALK, there), (socket.AF_INET, there))

    with connected(PATIENCE_SECONDS) as made:
        assert made.getpeername() == there
