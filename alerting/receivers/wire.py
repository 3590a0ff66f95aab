"""The sockets under a receiver: every answer has a deadline, and can be cut."""

from __future__ import annotations

import io
import math
import socket
import time
from collections.abc import Callable
from http.client import HTTPResponse
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class Wire(HTTPAdapter):
    """A transport whose answers end by ``deadline`` (monotonic seconds), however they drip.

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
        """Make pools whose answers are read through this wire."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {
            "http": self._pool(HTTPConnectionPool),
            "https": self._pool(HTTPSConnectionPool),
        }

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
        """How long the present answer may still take."""
        return -math.inf if self._cut else self.deadline - time.monotonic()

    def _pool(self, base: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
        connection = type("Connection", (base.ConnectionCls,), {"response_class": self._response})
        return type("Pool", (base,), {"ConnectionCls": connection})

    def _response(self, sock: socket.socket, *args: Any, **kwargs: Any) -> HTTPResponse:
        self._socket = sock
        response = HTTPResponse(sock, *args, **kwargs)
        unbounded = response.fp
        response.fp = io.BufferedReader(_Reader(sock, self.seconds_left))
        unbounded.close()
        return response


class _Reader(io.RawIOBase):
    """A socket's bytes until the time is up."""

    def __init__(self, sock: socket.socket, seconds_left: Callable[[], float]) -> None:
        super().__init__()
        self._socket = sock
        self._bytes = sock.makefile("rb", buffering=0)
        self._seconds_left = seconds_left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._seconds_left()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(min(left, self._socket.gettimeout() or left))
        return self._bytes.readinto(buffer)

    def close(self) -> None:
        self._bytes.close()
        super().close()
