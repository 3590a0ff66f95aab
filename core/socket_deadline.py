"""A deadline for all operations of a socket together, and a way to abort them."""

from __future__ import annotations

import io
import math
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any


class SocketDeadline:
    """Ends an exchange by ``deadline`` (monotonic seconds), however slow the server is.

    A socket's timeout counts for one operation, so a server that sends a byte now and then would
    hold an exchange for ever. Here each operation gets only what is left. A watchdog thread would
    not do: since Python 3.12 none can be started during interpreter exit, when a dying driver's
    alert leaves.
    """

    def __init__(self) -> None:
        self.deadline = math.inf
        self._cut = False
        self._socket: socket.socket | None = None

    def cut(self) -> None:
        """End the exchange in progress, and any later one, at once; for another thread."""
        self._cut = True
        if self._socket is not None:
            try:
                # The plain method: an SSLSocket's own would pull its state from under the reader.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:
                return  # it has ended by itself

    @property
    def is_cut(self) -> bool:
        """Whether ``cut`` was called."""
        return self._cut

    def use(self, sock: socket.socket) -> socket.socket:
        """Let ``cut`` end the exchange on this socket; return it."""
        self._socket = sock
        return sock

    def seconds_left(self) -> float:
        """Seconds that the current exchange may still take."""
        return -math.inf if self._cut else self.deadline - time.monotonic()

    def limit(self, sock: socket.socket) -> None:
        """Limit the next operation of ``sock`` to the time that is left.

        Raises:
            TimeoutError: no time is left.

        """
        left = self.seconds_left()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(min(left, sock.gettimeout() or left))

    def connect_within(self, host: str, port: int, step_seconds: float = math.inf) -> socket.socket:
        """Connect to the first address that accepts, each within a step; the lookup has no limit.

        No address may take the time of those after it.

        Raises:
            OSError: none accepted in time.

        """
        error: OSError = TimeoutError()
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for tried, (*kind, _, address) in enumerate(found):
            share = self.seconds_left() / (len(found) - tried)
            try:
                return self._connected(kind, address, min(share, step_seconds))
            except OSError as failed:
                error = failed
        raise error

    def _connected(self, kind: list[Any], address: Any, seconds: float) -> socket.socket:
        made = socket.socket(*kind)
        try:
            made.settimeout(max(seconds, 0.0))
            self.limit(made)
            self.use(made).connect(address)
        except OSError:
            made.close()
            raise
        return made

    def secured(self, sock: socket.socket, tls: ssl.SSLContext, host: str) -> ssl.SSLSocket:
        """Switch a connected socket to TLS for ``host``; ``cut`` ends the handshake, too.

        Raises:
            OSError: the handshake failed, or not in time.

        """
        made = tls.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        self.use(made)
        self.limit(made)
        made.do_handshake()
        return made

    def reader(self, sock: socket.socket) -> io.BufferedReader:
        """The bytes of ``sock`` until the deadline; ``cut`` ends it, too."""
        # Through an https:// proxy it is urllib3's TLS within TLS, around the real socket.
        self.use(getattr(sock, "socket", sock))
        return io.BufferedReader(_Reader(sock, self.limit))


class _Reader(io.RawIOBase):
    """A socket's bytes until the time is up."""

    def __init__(self, sock: socket.socket, limit: Callable[[socket.socket], None]) -> None:
        super().__init__()
        self._socket = sock
        self._bytes = sock.makefile("rb", buffering=0)
        self._limit = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._limit(self._socket)
        return self._bytes.readinto(buffer)

    def close(self) -> None:
        self._bytes.close()
        super().close()
