"""One deadline for a whole exchange over a socket or over HTTP, and a way to abort it."""

from __future__ import annotations

import io
import math
import socket
import time
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from typing import Any

from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationParseError,
    NameResolutionError,
    NewConnectionError,
)

PIECE_BYTES = 16 * 1024


def _unconnected(connection: HTTPConnection, error: OSError) -> HTTPError:
    """The error that urllib3 raises in the same case."""
    if isinstance(error.__cause__, UnicodeError):
        return LocationParseError(connection.host)
    if isinstance(error, socket.gaierror):
        return NameResolutionError(connection.host, connection, error)
    if isinstance(error, TimeoutError):
        return ConnectTimeoutError(connection, "not accepted in time")
    return NewConnectionError(connection, "not connected")


class SocketDeadline:
    """Ends an exchange by ``deadline`` (monotonic seconds), however slow the server is.

    A socket's timeout counts for one operation, so a server that sends a byte now and then would
    hold an exchange for ever. Here each operation gets only what is left. A watchdog thread would
    not do: since Python 3.12 none can be started during interpreter exit, when a dying driver's
    alert leaves.
    """

    def __init__(self) -> None:
        self.deadline = math.inf
        self.is_cut = False
        """Whether ``cut`` was called."""
        self._socket: socket.socket | None = None

    def cut(self) -> None:
        """End the exchange in progress, and any later one, at once; for another thread."""
        self.is_cut = True
        if self._socket is not None:
            try:
                # The plain method: an SSLSocket's own would pull its state from under the reader.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:
                return  # it has ended by itself

    def use(self, sock: socket.socket) -> socket.socket:
        """Let ``cut`` end the exchange on this socket; return it."""
        self._socket = sock
        return sock

    def seconds_left(self) -> float:
        """Seconds that the current exchange may still take."""
        return -math.inf if self.is_cut else self.deadline - time.monotonic()

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
            OSError: none accepted in time, or ``host`` cannot be a name.

        """
        error: OSError = TimeoutError()
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as wrong:
            raise socket.gaierror(socket.EAI_NONAME, "not a host name") from wrong
        for tried, (*kind, _, address) in enumerate(found):
            share = self.seconds_left() / (len(found) - tried)
            try:
                return self._connected(kind, address, min(share, step_seconds))
            except OSError as failed:
                error = failed
        raise error

    def reader(self, sock: socket.socket) -> io.BufferedReader:
        """The bytes of ``sock`` until the deadline; ``cut`` ends it, too."""
        # Through an https:// proxy it is urllib3's TLS within TLS, around the real socket.
        self.use(getattr(sock, "socket", sock))
        return io.BufferedReader(_Reader(sock, self.limit))

    def pools(self) -> dict[str, type[HTTPConnectionPool]]:
        """urllib3's pools by scheme, with connections that end by the deadline at every step."""
        return {"http": self._pool(HTTPConnectionPool), "https": self._pool(HTTPSConnectionPool)}

    def _connected(self, kind: list[Any], address: Any, seconds: float) -> socket.socket:
        made = socket.socket(*kind)
        try:
            made.settimeout(max(seconds, 0.0))
            self.limit(made)
            self.use(made).connect(address)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.limit(made)
        except OSError:
            made.close()
            raise
        return made

    def _response(self, sock: socket.socket, *args: Any, **kwargs: Any) -> HTTPResponse:
        response = HTTPResponse(sock, *args, **kwargs)
        unbounded = response.fp
        response.fp = self.reader(sock)
        unbounded.close()
        return response

    def _pool(self, base: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
        exchange = self
        plain: Any = base.ConnectionCls

        class Connection(plain):  # type: ignore[misc]  # its base is a value, chosen by scheme
            response_class = exchange._response

            def _new_conn(self) -> socket.socket:
                try:
                    return exchange.connect_within(self._dns_host, self.port, self.timeout)
                except OSError as error:
                    raise _unconnected(self, error) from error

            def send(self, data: Any) -> None:
                for piece in pieces(data) if isinstance(data, bytes) else (data,):
                    if self.sock is not None:
                        exchange.limit(self.sock)
                    super().send(piece)

        class Pool(base):  # type: ignore[misc,valid-type]  # as above
            ConnectionCls = Connection

        return Pool


def pieces(data: bytes) -> Iterator[bytes]:
    """``data`` in the size of a TLS record: the limit of a whole SSL socket counts for each."""
    return (data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES))


def causes(error: BaseException) -> list[BaseException]:
    """The error and its causes, the root cause last."""
    chain = [error]
    while (context := chain[-1].__context__) is not None:
        chain.append(context)
    # urllib3 wraps some errors without raising the wrapper, which is then a cause only.
    return [*(link.__cause__ for link in chain if link.__cause__ is not None), *chain]


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
