"""Handles one HTTP request: parses its head and sends the answer within a deadline."""

from __future__ import annotations

import gzip
import re
import socket
import time
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import Any

import msgspec
from prometheus_client.exposition import gzip_accepted

from .pages import SILENCES, Pages, Reply, is_public
from .reception import Request

IO_SECONDS = 5.0
"""How long a client may take to receive the answer."""
DRAIN_SECONDS = 1.0
"""How long an unused request body may take to arrive."""
BODY_BYTES = 16 * 1024
GZIP_FROM_BYTES = 1024
GZIP_LEVEL = 3
"""A fifth of the work of the default 9, for a fifth more bytes."""
_CHUNK_BYTES = 16 * 1024
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
