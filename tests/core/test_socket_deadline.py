"""All operations of a socket share one deadline; each address of a host gets a part of it."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from support.clock import Clock
from support.patience import PATIENCE_SECONDS

from querypulse.core import socket_deadline
from querypulse.core.socket_deadline import SocketDeadline

LOOPBACK = "127.0.0.1"
OTHER_LOOPBACK = "127.0.0.2"
PORT = 9719


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


def exchange(seconds: float) -> SocketDeadline:
    made = SocketDeadline()
    made.deadline = time.monotonic() + seconds
    return made


def test_address_that_never_answers_leaves_time_for_the_next_one(monkeypatch):
    silent, server = (LOOPBACK, PORT), (OTHER_LOOPBACK, PORT)
    resolving_to(monkeypatch, (socket.AF_INET, silent), (socket.AF_INET, server))
    clock = Clock(time.monotonic())

    class FakeSocket:
        """A socket to an address that answers at once, or that takes all the time there is."""

        def __init__(self, *_):
            self.seconds = None

        def gettimeout(self):
            return self.seconds

        def settimeout(self, seconds):
            self.seconds = seconds

        def connect(self, address):
            self.address = address
            if address == silent:
                clock.now += self.seconds
                raise TimeoutError

        def setsockopt(self, *_): ...

        def close(self): ...

    monkeypatch.setattr(socket_deadline, "PlainSocket", FakeSocket)
    monkeypatch.setattr(socket_deadline, "time", SimpleNamespace(monotonic=clock))
    made = SocketDeadline()
    made.deadline = clock.now + 2.0

    connected = made.connect("driver", PORT)
    assert (connected.address, connected.seconds) == (server, pytest.approx(1.0))


def test_step_limits_an_address_that_never_answers(monkeypatch, black_hole):
    """Without the step, the exchange would have an hour."""
    monkeypatch.setattr(socket_deadline, "CONNECT_SECONDS", 0.05)
    resolving_to(monkeypatch, (socket.AF_INET, black_hole))

    with pytest.raises(TimeoutError):
        exchange(3600.0).connect("driver", black_hole[1])


def test_no_time_is_left(server):
    with pytest.raises(TimeoutError):
        exchange(0.0).connect(*server.getsockname())


@pytest.mark.fault(
    "Disk, port and mounts", "The kernel lacks IPv4 or IPv6", "The other one is used"
)
def test_address_family_that_the_kernel_lacks_is_skipped(monkeypatch, server):
    resolving_to(
        monkeypatch,
        (socket.AF_APPLETALK, server.getsockname()),
        (socket.AF_INET, server.getsockname()),
    )

    with exchange(PATIENCE_SECONDS).connect("driver", 80) as connected:
        assert connected.getpeername() == server.getsockname()


def test_lack_of_sockets_is_reported_as_it_is(monkeypatch, server):
    def none_left(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket_deadline, "PlainSocket", none_left)

    with pytest.raises(OSError, match="Too many open files") as raised:
        exchange(PATIENCE_SECONDS).connect(*server.getsockname())
    assert raised.value.errno == errno.EMFILE
