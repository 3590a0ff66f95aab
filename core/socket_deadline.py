"""One deadline for a whole exchange over a socket, and a way to abort it."""

from __future__ import annotations

import errno
import io
import math
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPResponse
from typing import Any

CONNECT_SECONDS = 3.0
"""The longest that one address may take to accept a connection."""


class SocketDeadline:
    """Ends an exchange in time, however slow the server is, and at once when it is ``cut``.

    A socket's timeout counts for one read, so a server that sends a byte now and then would hold
    an exchange for ever: each read gets only what is left. (A TLS handshake and ``sendall`` each
    count as one operation.) A watchdog thread would not do: since Python 3.12 none can be started
    during interpreter exit, when a dying driver's alert leaves.
    """

    def __init__(self) -> None:
        self.is_cut = False
        """Whether ``cut`` was called."""
        self._ends_at = math.inf
        self._twin: socket.socket | None = None
        """A duplicate of the socket in use, which stays valid when TLS takes that over."""

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Begin an exchange that may take so long."""
        self._ends_at = time.monotonic() + seconds
        try:
            yield
        finally:
            self._watch(None)

    def cut(self) -> None:
        """End the exchange in progress, and any later one, at once; for another thread."""
        self.is_cut = True
        twin = self._twin
        if twin is not None:
            with suppress(OSError):  # it has ended by itself
                twin.shutdown(socket.SHUT_RDWR)

    def connect(self, host: str, port: int) -> socket.socket:
        """Connect to the first address that accepts; the lookup has no limit.

        No address may take the time of those after it.

        Raises:
            OSError: none accepted in time, or ``host`` cannot be a name.

        """
        error: OSError = TimeoutError()
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as wrong:
            raise socket.gaierror(socket.EAI_NONAME, "not a host name") from wrong
        for tried, (*kind, _, address) in enumerate(addresses):
            try:
                return self._connected(kind, address, len(addresses) - tried)
            except OSError as failed:  # noqa: PERF203 - a name has few addresses
                error = failed
        raise error

    def reader(self, sock: Any) -> io.BufferedReader:
        """What ``sock.makefile("rb")`` returns, within the time of this exchange."""
        return io.BufferedReader(_Reader(self, sock))

    def response(self, sock: Any, *args: Any, **kwargs: Any) -> HTTPResponse:
        """The ``response_class`` of an HTTP connection within the time of this exchange."""
        return HTTPResponse(_Reader(self, sock), *args, **kwargs)  # type: ignore[arg-type]  # it makes a file of it, no more

    def limit(self, sock: Any, *, share: int = 1, most_seconds: float = math.inf) -> None:
        """Limit the next operation of ``sock`` to a share of the time that is left.

        Raises:
            OSError: no time is left, or ``cut`` was called.

        """
        if self.is_cut:
            raise OSError(errno.ECANCELED, "closed")
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(min(left / share, most_seconds))

    def _connected(self, kind: list[Any], address: Any, share: int) -> socket.socket:
        made = socket.socket(*kind)
        try:
            # The twin comes first: a ``cut`` finds it, or is found by ``limit``.
            self._watch(made.dup())
            self.limit(made, share=share, most_seconds=CONNECT_SECONDS)
            made.connect(address)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.limit(made)
        except OSError:
            made.close()
            raise
        return made

    def _watch(self, twin: socket.socket | None) -> None:
        before = self._twin
        self._twin = twin
        if before is not None:
            before.close()


class _Reader(io.RawIOBase):
    """Reads from a socket within the time of an exchange."""

    def __init__(self, exchange: SocketDeadline, sock: Any) -> None:
        self._exchange = exchange
        self._sock = sock
        self._file = sock.makefile("rb", 0)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._exchange.limit(self._sock)
        read: int | None = self._file.readinto(buffer)
        return read

    def close(self) -> None:
        self._file.close()
        super().close()
