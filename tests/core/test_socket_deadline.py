"""All operations of a socket share one deadline; each address of a host gets a part of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from support.patience import PATIENCE_SECONDS

from querypulse.core import socket_deadline
from querypulse.core.socket_deadline import SocketDeadline

LOOPBACK = "127.0.0.1"
OTHER_LOOPBACK = "127.0.0.2"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A server that accepts connections on the second loopback address."""
    with socket.create_server((OTHER_LOOPBACK, 0)) as made:
        yield made


@pytest.fixture
def black_hole(server) -> Iterator[tuple[str, int]]:
    """The server's port on the first loopback address, where no connection is ever accepted."""
    port = server.getsockname()[1]
    with ExitStack() as stack:
        stack.enter_context(socket.create_server((LOOPBACK, port), backlog=0))
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex((LOOPBACK, port))
        yield LOOPBACK, port


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
    ("step_seconds", "seconds"), [(0.05, 3600.0), (3600.0, 1.0)], ids=["step", "share"]
)
def test_address_that_never_answers_leaves_time_for_the_next_one(
    monkeypatch, server, black_hole, step_seconds, seconds
):
    """It takes at most a step, and its share of the time."""
    monkeypatch.setattr(socket_deadline, "CONNECT_SECONDS", step_seconds)
    there = server.getsockname()
    resolving_to(monkeypatch, (socket.AF_INET, black_hole), (socket.AF_INET, there))

    with connected(seconds) as made:
        assert made.getpeername() == there


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
