"""Accepts and serves requests: one thread receives, another one serves each request."""

from __future__ import annotations

import os
import re
import socket
import ssl
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from ..core.guard import Guard
from .reception import Reception, Request
from .slots import RequestSlots, RequestTask

MAX_REQUESTS = 8
"""Requests served at once; more wait in a queue."""
KEPT_FOR_LIVENESS = 2
"""Extra slots for ``/livez``, because Kubernetes restarts a driver that does not answer there."""
BACKLOG = 64
_LIVENESS = re.compile(rb"(GET|HEAD) /livez(\?\S*)? HTTP/1\.[01]\r?\n")


class ThreadedServer:
    """Calls ``handler`` with each request; every wait is bounded or ends with ``wake``.

    Raises:
        OSError: the port is taken, or the host has no address.

    """

    def __init__(
        self,
        host: str,
        port: int,
        handler: Callable[[Request], object],
        context: ssl.SSLContext | None,
        guard: Guard,
    ) -> None:
        self._handler = handler
        self._socket = _listening(host, port)
        self._reception = Reception(self._socket, context)
        self._slots = RequestSlots(MAX_REQUESTS, guard)
        self._kept = RequestSlots(KEPT_FOR_LIVENESS, guard)
        self._serving: set[socket.socket] = set()
        myself = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _leave(myself()))

    @property
    def address(self) -> tuple[str, int]:
        """The IP address and port that it listens on."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    def step(self) -> None:
        """Wait briefly for clients, or until woken; hand their requests to threads."""
        for request in self._reception.step():
            slots = self._kept if _LIVENESS.match(request.head) else self._slots
            self._serving.add(request.connection)
            task = RequestTask(partial(self._answer, request), str(request.peer[0]))
            if not slots.offer(task):
                self._end(request.connection)

    def renew(self, context: ssl.SSLContext) -> None:
        """Use ``context`` for connections accepted from now on."""
        self._reception.context = context

    def wake(self) -> None:
        """Make every ``step`` from now on return without waiting."""
        self._reception.wake()

    def finish_requests(self, seconds: float) -> None:
        """Wait until no request is being served; only after the last ``step``."""
        self._slots.finish(seconds)

    def close(self) -> None:
        """Stop listening; only after the last ``step``."""
        self._socket.close()
        self._reception.close()

    def leave(self) -> None:
        """Close the sockets that a fork inherited, which would keep the port taken."""
        for connection in (self._socket, *self._reception.connections, *self._serving):
            connection.close()

    def _answer(self, request: Request) -> None:
        try:
            # A client that is gone or too slow is not our error.
            with suppress(OSError):
                request.connection.setblocking(True)
                self._handler(request)
        finally:
            self._end(request.connection)

    def _end(self, connection: socket.socket) -> None:
        self._serving.discard(connection)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        connection.close()


def _listening(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    address: Any
    family, _, _, _, address = found[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _leave(server: ThreadedServer | None) -> None:
    if server is not None:
        server.leave()
