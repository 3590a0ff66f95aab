"""Accepting and serving: one thread accepts, one more for each request."""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from socketserver import TCPServer
from typing import Any

from ..listener.guard import Guard
from .exchange import IO_SECONDS, Exchange

MAX_REQUESTS = 8
"""Requests served at once; more wait, unaccepted, until one is done."""
POLL_SECONDS = 0.1


class ThreadedServer(TCPServer):
    """Calls ``exchange`` for each connection; every wait is bounded, or ends with ``wake``."""

    allow_reuse_address = True
    request_queue_size = 64
    timeout = 0.0
    """``handle_request`` is called when somebody is there, or nobody is waited for any more."""

    def __init__(
        self,
        host: str,
        port: int,
        exchange: Callable[..., Exchange],
        context: ssl.SSLContext | None,
        guard: Guard,
    ) -> None:
        self._context = context
        self._guard = guard
        self._slots = threading.Semaphore(MAX_REQUESTS)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        address: Any
        self.address_family, _, _, _, address = found[0]
        self._connections: set[socket.socket] = set()
        self._wake, self._woken = socket.socketpair()
        self._events = selectors.DefaultSelector()
        super().__init__(address, exchange)
        for connection in (self.socket, self._woken):
            self._events.register(connection, selectors.EVENT_READ)
        myself = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _leave(myself()))

    def step(self) -> None:
        """Wait a moment for a free slot, then for a client, or until woken."""
        if self._slots.acquire(timeout=POLL_SECONDS):
            # Nobody else takes slots, so it is still free when a client comes.
            self._slots.release()
            self._events.select()
            self.handle_request()

    def wake(self) -> None:
        """From now on no ``step`` waits for a client."""
        self._wake.send(b"\0")

    def finish_requests(self, seconds: float) -> None:
        """Wait until nothing is being served; only after the last ``step``."""
        deadline = time.monotonic() + seconds
        for _ in range(MAX_REQUESTS):
            self._slots.acquire(timeout=max(0.0, deadline - time.monotonic()))

    def server_close(self) -> None:
        """Listen no more; only after the last ``step``."""
        super().server_close()
        self._events.close()
        self._wake.close()
        self._woken.close()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept; without free file descriptors that fails at once, again and again."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(POLL_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve in a thread of its own."""
        thread = threading.Thread(
            target=self._serve,
            args=(request, client_address),
            name="querypulse-http-request",
            daemon=True,
        )
        if self._guard.attempt("exporter", thread.start):
            self._slots.acquire()
        else:
            self.shutdown_request(request)

    def _serve(self, request: socket.socket, client_address: Any) -> None:
        try:
            self._guard.attempt("exporter", lambda: self._answer(request, client_address))
        finally:
            self._slots.release()

    def _answer(self, request: socket.socket, client_address: Any) -> None:
        # A client that is silent, gone or speaks no TLS is not an error of ours.
        with suppress(OSError):
            connection = self._secure(request)
            self._connections.add(connection)
            try:
                if isinstance(connection, ssl.SSLSocket):
                    connection.settimeout(IO_SECONDS)
                    connection.do_handshake()
                self.finish_request(connection, client_address)
            finally:
                self._connections.discard(connection)
                self.shutdown_request(connection)

    def _secure(self, request: socket.socket) -> socket.socket:
        if self._context is None:
            return request
        return self._context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)


def _leave(server: ThreadedServer | None) -> None:
    """In a fork of the driver: else the port would stay taken, and connections open, with it."""
    if server is not None:
        for connection in (server.socket, *server._connections):  # noqa: SLF001 - our own
            connection.close()
