"""A real HTTP server on loopback that records requests and answers by script."""

from __future__ import annotations

import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.patience import PATIENCE_SECONDS

DRIP_SECONDS = 0.05


@dataclass(frozen=True)
class RecordedRequest:
    """One request as it arrived."""

    method: str
    path: str
    headers: Message
    body: bytes


class DoubleHandler(BaseHTTPRequestHandler):
    """Hands each request to its double."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise a body waits 40 ms for the ACK of its head
    server: HttpDouble

    @property
    def double(self) -> HttpDouble:
        return self.server

    def setup(self) -> None:
        if self.double.tls is not None:
            self.request = self.double.secure(self.request)
        super().setup()

    def finish(self) -> None:
        super().finish()
        if self.double.tls is not None:
            self.request.close()  # the server closes only the socket below TLS

    def do_POST(self) -> None:
        request = RecordedRequest(self.command, self.path, self.headers, self._body())
        self.double.handle(request, self)

    do_GET = do_CONNECT = do_PUT = do_DELETE = do_POST  # noqa: N815 - http.server's own names

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""


Answer = Callable[[DoubleHandler], None]


def reply(status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
    """A complete answer."""
    has_body = status >= 200 and status not in {204, 304}

    def answer(handler: DoubleHandler) -> None:
        handler.send_response(status)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        if has_body:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if has_body:
            handler.wfile.write(body)

    return answer


def held(until: threading.Event, then: Answer) -> Answer:
    """No answer until the event is set (or the double closes), then ``then``."""

    def answer(handler: DoubleHandler) -> None:
        while not until.wait(0.01):
            if handler.double.closing.is_set():
                return
        then(handler)

    return answer


def drip(start: bytes) -> Answer:
    """``start``, then single bytes at intervals, for ever."""

    def answer(handler: DoubleHandler) -> None:
        handler.connection.sendall(start)
        while not handler.double.closing.wait(DRIP_SECONDS):
            try:
                handler.connection.sendall(b"a")
            except OSError:
                break
        handler.close_connection = True

    return answer


def raw(text: bytes = b"") -> Answer:
    """These bytes, then the end of the connection."""

    def answer(handler: DoubleHandler) -> None:
        handler.connection.sendall(text)
        handler.close_connection = True

    return answer


@contextmanager
def closed_port() -> Iterator[int]:
    """A port of loopback that refuses connections: it is bound, so that nobody else gets it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


class HttpDouble(ThreadingHTTPServer):
    """Answers from ``script`` first, then ``otherwise``; a context manager that cleans up."""

    daemon_threads = False
    block_on_close = True

    def __init__(
        self,
        *script: Answer,
        otherwise: Answer | None = None,
        tls: ssl.SSLContext | None = None,
        address: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, DoubleHandler)
        self.script: deque[Answer] = deque(script)
        self.otherwise = otherwise or reply(200)
        self.requests: list[RecordedRequest] = []
        self.tls = tls
        self.closing = threading.Event()
        self._arrived = threading.Condition()
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        host = f"[{host}]" if ":" in host else host
        return f"http{'s' if self.tls else ''}://{host}:{port}"

    def handle(self, request: RecordedRequest, handler: DoubleHandler) -> None:
        with self._arrived:
            self.requests.append(request)
            answer = self.script.popleft() if self.script else self.otherwise
            self._arrived.notify_all()
        answer(handler)

    def wait_for(self, count: int) -> list[RecordedRequest]:
        """Wait for the first ``count`` requests."""
        with self._arrived:
            came = self._arrived.wait_for(lambda: len(self.requests) >= count, PATIENCE_SECONDS)
        assert came, f"{len(self.requests)} requests came, not {count}"
        return self.requests[:count]

    def process_request(self, request: socket.socket, client_address: object) -> None:
        self._connections.append(request)
        super().process_request(request, client_address)

    def secure(self, connection: socket.socket) -> ssl.SSLSocket:
        """The connection after a handshake, which may fail."""
        assert self.tls is not None
        secured = self.tls.wrap_socket(connection, server_side=True)
        self._connections.append(secured)
        return secured

    def handle_error(self, *_: object) -> None:
        """Ignore clients that hang up: tests do that."""

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.shutdown()
        self._thread.join()
        for connection in self._connections:
            try:
                # The shutdown of an SSL socket would break the thread that reads from it.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            except OSError:
                continue  # closed already
            finally:
                connection.close()
        self.server_close()
