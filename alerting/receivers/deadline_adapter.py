"""The sockets of a receiver: every request has a deadline and can be aborted."""

from __future__ import annotations

import io
import math
import socket
import time
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

PIECE_BYTES = 16 * 1024


class DeadlineAdapter(HTTPAdapter):
    """A transport whose answers end by ``deadline`` (monotonic seconds), however slow they are.

    A read timeout counts for one socket operation, so a server that sends a byte now and
    then holds a call for ever, in the head as in the body. Here each read gets only what is
    left. A watchdog thread would not do: since Python 3.12 none can be started during
    interpreter exit, when a dying driver's alert leaves.
    """

    def __init__(self) -> None:
        self.deadline = math.inf
        self._cut = False
        self._socket: socket.socket | None = None
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make pools whose answers are read through this adapter."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools()

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Make the pools behind a proxy likewise."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = self._pools()
        return manager

    def cut(self) -> None:
        """End the answer being read, and any later one, at once; for another thread."""
        self._cut = True
        if self._socket is not None:
            try:
                # The plain method: an SSLSocket's own would pull its state from under the reader.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:
                return  # it has ended by itself

    def seconds_left(self) -> float:
        """Seconds that the current answer may still take."""
        return -math.inf if self._cut else self.deadline - time.monotonic()

    def _pools(self) -> dict[str, type[HTTPConnectionPool]]:
        return {"http": self._pool(HTTPConnectionPool), "https": self._pool(HTTPSConnectionPool)}

    def _pool(self, base: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
        wire: DeadlineAdapter = self
        plain: Any = base.ConnectionCls

        def send(connection: Any, data: Any) -> None:
            for piece in _pieces(data):
                if connection.sock is not None:
                    wire.limit(connection.sock)
                plain.send(connection, piece)

        own = {"response_class": self._response, "send": send}
        return type("Pool", (base,), {"ConnectionCls": type("Connection", (plain,), own)})

    def limit(self, sock: socket.socket) -> None:
        """Limit the next operation of ``sock`` to the time that is left.

        Raises:
            TimeoutError: no time is left.

        """
        left = self.seconds_left()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(min(left, sock.gettimeout() or left))

    def _response(self, sock: socket.socket, *args: Any, **kwargs: Any) -> HTTPResponse:
        # Through an https:// proxy it is urllib3's TLS within TLS, around the real socket.
        self._socket = getattr(sock, "socket", sock)
        response = HTTPResponse(sock, *args, **kwargs)
        unbounded = response.fp
        response.fp = io.BufferedReader(_Reader(sock, self.limit))
        unbounded.close()
        return response


def _pieces(data: Any) -> Iterator[Any]:
    """``data`` in the size of a TLS record: what a whole SSL socket's limit counts for."""
    if not isinstance(data, bytes):
        yield data
        return
    for start in range(0, len(data), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES]


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
