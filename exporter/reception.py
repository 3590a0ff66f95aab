"""Receives requests of all clients in one thread, so that a slow client delays no other."""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec

HEAD_SECONDS = 1.0
"""How long a client may take for the request line and the headers."""
HANDSHAKE_SECONDS = 3.0
"""How long a client may take for the TLS handshake before that."""
HEAD_BYTES = 64 * 1024
MAX_INCOMING = 64
"""Connections without a complete request; one more closes the oldest of the busiest peer."""
POLL_SECONDS = 0.1
_LONGEST_POLL_SECONDS = 0.25
_CHUNK_BYTES = 16 * 1024
_ACCEPTED_AT_ONCE = 16
_END_OF_HEAD = b"\r\n\r\n"


class Request(msgspec.Struct, frozen=True):
    """A connection, blocking again, and the bytes received: the head and any data after it."""

    connection: socket.socket
    peer: Any
    head: bytes


class Incoming:
    """A connection whose request is not complete; non-blocking."""

    def __init__(self, connection: socket.socket, peer: Any) -> None:
        self.connection = connection
        self.peer = peer
        self.head = b""
        self.is_secured = not isinstance(connection, ssl.SSLSocket)
        self.awaits = selectors.EVENT_READ

    def receive(self) -> bool:
        """Read the available bytes; True once the head is complete.

        Raises:
            OSError: the client is gone, sends too much, or does not use TLS.

        """
        try:
            self._shake_hands()
            while _END_OF_HEAD not in self.head:
                chunk = self.connection.recv(_CHUNK_BYTES)
                if not chunk or len(self.head) > HEAD_BYTES:
                    raise OSError("no request")
                self.head += chunk
        except (BlockingIOError, ssl.SSLWantReadError):
            self.awaits = selectors.EVENT_READ
            return False
        except ssl.SSLWantWriteError:
            self.awaits = selectors.EVENT_WRITE
            return False
        return True

    def _shake_hands(self) -> None:
        if not self.is_secured and isinstance(self.connection, ssl.SSLSocket):
            self.connection.do_handshake()
            self.is_secured = True


class Reception:
    """Accepts connections on ``listener`` and receives requests while ``step`` is called.

    ``context`` may be replaced; it applies to connections accepted from then on.
    """

    def __init__(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        self.context = context
        self._listener = listener
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._incoming: dict[socket.socket, tuple[Incoming, float]] = {}
        """Oldest first, each with its deadline."""
        self._polled_at = time.monotonic()
        self._attended = 0.0
        """Seconds spent polling, so that a paused driver does not count against clients."""
        for connection in (listener, self._woken):
            self._selector.register(connection, selectors.EVENT_READ)

    @property
    def connections(self) -> list[socket.socket]:
        """A copy of the connections without a complete request."""
        return list(self._incoming)

    def step(self) -> list[Request]:
        """Wait briefly for clients, or until woken; return the complete requests."""
        ready = self._selector.select(POLL_SECONDS if self._incoming else None)
        now = time.monotonic()
        self._attended += min(now - self._polled_at, _LONGEST_POLL_SECONDS)
        self._polled_at = now
        complete = []
        for key, _ in ready:
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj in self._incoming:
                complete += self._receive(key.data)
        for incoming, deadline in list(self._incoming.values()):
            if self._attended > deadline:
                self._end(incoming)
        return complete

    def wake(self) -> None:
        """Make every ``step`` from now on return without waiting."""
        self._wake.send(b"\0")

    def close(self) -> None:
        """Close all connections without a complete request; only after the last ``step``."""
        for incoming, _ in list(self._incoming.values()):
            self._end(incoming)
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, peer = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # Without free file descriptors this fails at once, repeatedly.
                time.sleep(POLL_SECONDS)
                return
            with suppress(OSError):
                self._take(connection, peer)

    def _take(self, connection: socket.socket, peer: Any) -> None:
        connection.setblocking(False)
        if self.context is not None:
            connection = self.context.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        if len(self._incoming) >= MAX_INCOMING:
            self._end(self._most_dispensable())
        incoming = Incoming(connection, peer)
        seconds = HEAD_SECONDS if incoming.is_secured else HANDSHAKE_SECONDS
        self._incoming[connection] = (incoming, self._attended + seconds)
        self._selector.register(connection, incoming.awaits, incoming)

    def _most_dispensable(self) -> Incoming:
        waiting = [incoming for incoming, _ in self._incoming.values()]
        peer, _ = Counter(one.peer[0] for one in waiting).most_common(1)[0]
        return next(one for one in waiting if one.peer[0] == peer)

    def _receive(self, incoming: Incoming) -> list[Request]:
        was_secured = incoming.is_secured
        try:
            is_complete = incoming.receive()
        except OSError:
            # A client that is gone or does not use TLS is not our error.
            self._end(incoming)
            return []
        connection = incoming.connection
        if is_complete:
            self._selector.unregister(connection)
            del self._incoming[connection]
            return [Request(connection, incoming.peer, incoming.head)]
        if incoming.is_secured != was_secured:
            self._incoming[connection] = (incoming, self._attended + HEAD_SECONDS)
        self._selector.modify(connection, incoming.awaits, incoming)
        return []

    def _end(self, incoming: Incoming) -> None:
        self._selector.unregister(incoming.connection)
        del self._incoming[incoming.connection]
        incoming.connection.close()
