"""HTTP requests: one thread receives them, and each is handled within a deadline."""

from __future__ import annotations

import gzip
import re
import selectors
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import Any

import msgspec
from prometheus_client.exposition import gzip_accepted

from .pages import SILENCES, Pages, Reply, is_public

# -- reception --------------------------------------------------------------------------------
# Receives requests of all clients in one thread, so that a slow client delays no other.


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


# -- request handler --------------------------------------------------------------------------
# Handles one HTTP request: parses its head and sends the answer within a deadline.


IO_SECONDS = 5.0
"""How long a client may take to receive the answer."""
DRAIN_SECONDS = 1.0
"""How long an unused request body may take to arrive."""
BODY_BYTES = 16 * 1024
GZIP_FROM_BYTES = 1024
GZIP_LEVEL = 3
"""A fifth of the work of the default 9, for a fifth more bytes."""
_LENGTH = re.compile(r"[0-9]+")
_LONGEST_LENGTH = 5
"""Digits of ``BODY_BYTES``; Python refuses to read a number of thousands of digits."""


class Admission(msgspec.Struct, frozen=True):
    """Who may read: ``token`` returns the current bearer token, ``knows`` accepts Host headers."""

    token: Callable[[], str | None]
    knows: Callable[[str], bool]


class RequestHandler(BaseHTTPRequestHandler):
    """Answers a single request, because a kept-alive connection would occupy a thread.

    The standard handler works on bytes in memory here. On a socket, every byte of a slow client
    would restart its timeouts.
    """

    def __init__(self, pages: Pages, admission: Admission, request: Request) -> None:
        self._pages = pages
        self._admission = admission
        self._head = request.head
        super().__init__(request.connection, request.peer, None)  # type: ignore[arg-type] # no server is asked

    def setup(self) -> None:
        """Read from the received head; a body is read only if needed."""
        self.rfile = BytesIO(self._head)
        self.wfile = self._answer = BytesIO()

    def handle(self) -> None:
        """Answer, unless the head was invalid and has been answered already."""
        self.raw_requestline = self.rfile.readline()
        if self.raw_requestline and self.parse_request():
            self._send(self._reply())

    def finish(self) -> None:
        """Send the answer."""
        send(self.request, self._answer.getvalue())
        if self.command not in (None, "GET", "HEAD"):
            let_arrive(self.request)

    def version_string(self) -> str:
        """The Server header, without a version that would help an attacker."""
        return "querypulse"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Log nothing: standard error belongs to the host."""

    def _reply(self) -> Reply:
        path = self.path.partition("?")[0]
        host = self.headers.get("Host")
        if host is not None and not self._admission.knows(host):
            return Reply(421, b"unknown host: read from localhost or from an IP address\n")
        reads = self.command in ("GET", "HEAD")
        if not self._may_read() and not (reads and is_public(path)):
            challenge = (("WWW-Authenticate", "Bearer"),)
            return Reply(401, b"a bearer token is needed\n", headers=challenge)
        if self.command == "POST" and path == SILENCES:
            return self._silenced()
        if not reads:
            return Reply(405, b"only GET and HEAD\n", headers=(("Allow", "GET, HEAD"),))
        return self._pages.get(path, self.headers.get("Accept", ""))

    def _silenced(self) -> Reply:
        if self._admission.token() is None:
            return Reply(403, b"silences need a token: set http_token_file\n")
        length = self.headers.get("Content-Length", "")
        if not _LENGTH.fullmatch(length):
            return Reply(400, b"a body with its Content-Length is needed\n")
        if len(length) > _LONGEST_LENGTH or int(length) > BODY_BYTES:
            return Reply(413, b"a body may have 16 KiB\n")
        return self._pages.post(self._body(int(length)))

    def _body(self, length: int) -> bytes:
        """The body: the part that arrived with the head, and the rest.

        Raises:
            OSError: the client was too slow, or is gone.

        """
        body, deadline = self.rfile.read(), time.monotonic() + IO_SECONDS
        while len(body) < length:
            self.request.settimeout(_left(deadline))
            chunk = self.request.recv(_CHUNK_BYTES)
            if not chunk:
                raise OSError("no body")
            body += chunk
        return body[:length]

    def _may_read(self) -> bool:
        wanted = self._admission.token()
        if wanted is None:
            return True
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        right = _is_same(token.strip().encode("latin-1", "replace"), wanted.encode())
        return right and scheme.lower() == "bearer"

    def _send(self, reply: Reply) -> None:
        body = reply.body
        self.send_response(reply.code)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if len(body) >= GZIP_FROM_BYTES and gzip_accepted(self.headers.get("Accept-Encoding", "")):
            body = gzip.compress(body, GZIP_LEVEL)
            self.send_header("Content-Encoding", "gzip")
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _is_same(given: bytes, wanted: bytes) -> bool:
    """Compare in a time that shows neither content nor length of ``wanted``."""
    return compare_digest(sha256(given).digest(), sha256(wanted).digest())


def send(connection: socket.socket, answer: bytes) -> None:
    """Send the whole answer.

    Raises:
        OSError: the client went away, or was too slow.

    """
    deadline, rest = time.monotonic() + IO_SECONDS, memoryview(answer)
    while rest:
        connection.settimeout(_left(deadline))
        rest = rest[connection.send(rest) :]


def let_arrive(connection: socket.socket) -> None:
    """Discard the body until the client closes; closing first could destroy the answer.

    Raises:
        OSError: the client was too slow, or is gone.

    """
    connection.shutdown(socket.SHUT_WR)
    deadline = time.monotonic() + DRAIN_SECONDS
    connection.settimeout(_left(deadline))
    while connection.recv(_CHUNK_BYTES):
        connection.settimeout(_left(deadline))


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
