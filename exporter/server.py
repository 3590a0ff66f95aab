"""A small HTTP server, which no silent, slow or greedy client can block.

One thread runs an event loop. A client that waits or is waited for costs a socket and the bytes
received so far, and has a limited time for each step. Another thread makes the pages, one at a
time: a log or a file that hangs does not stop ``/livez``. The server of ``prometheus_client``
answers 200 on every path and does the TLS handshake in its only accepting thread, without a
timeout.
"""

from __future__ import annotations

import asyncio
import errno
import gzip
import math
import os
import re
import socket
import ssl
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, nullcontext, suppress
from functools import partial
from hashlib import sha256
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from ipaddress import ip_address
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import msgspec
from prometheus_client.exposition import gzip_accepted

from ..core.files import Signature, signature_of
from ..core.guard import Guard
from ..core.threads import Deadline, Loop
from .pages import SILENCES, WATCH, Content, Notice, Pages, Reply, ShutdownNotice, is_public

HANDSHAKE_SECONDS = 3.0
"""How long a client may take for the TLS handshake."""
HEAD_SECONDS = 1.0
"""How long it may take for the request line and the headers after that."""
IO_SECONDS = 5.0
"""How long it may take to send a body, and to receive the answer."""
DRAIN_SECONDS = 1.0
"""How long an unused request body may take to arrive."""
TICK_SECONDS = 0.1
SENDING_SECONDS = 0.5
"""How long a close waits for answers that are being sent, such as the shutdown notice."""
HEAD_BYTES = 64 * 1024
BODY_BYTES = 16 * 1024
MAX_IDLE = 64
"""Connections without a complete request, or with a complete answer.

One more closes the oldest of the busiest client."""
MAX_REQUESTS = 8
"""Requests whose answers are made and sent at once, because they take memory; more wait."""
MAX_WAITING = 128
GZIP_FROM_BYTES = 1024
GZIP_LEVEL = 3
"""A fifth of the work of the default 9, for a fifth more bytes."""
BACKLOG = 64
MAX_RETRIES = 16
"""How many ports after a taken one are tried, as for the Spark UI (``spark.port.maxRetries``)."""
MAX_PORT = 65535
_CHUNK_BYTES = 16 * 1024
_LENGTH = re.compile(r"[0-9]+")
_LONGEST_LENGTH = 5
"""Digits of ``BODY_BYTES``; Python refuses to read a number of thousands of digits."""


class Tls(msgspec.Struct, frozen=True):
    """Paths of PEM files; with ``client_ca_file`` only clients that it has signed may read."""

    cert_file: str
    key_file: str
    client_ca_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """Read the files.

        Raises:
            OSError: a file cannot be read, or they do not match; the message names them.

        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # Without a password argument, an encrypted key would prompt at the terminal.
            context.load_cert_chain(self.cert_file, self.key_file, password="")
        except OSError as error:
            raise OSError(f"TLS files {self.cert_file}, {self.key_file}: {error}") from error
        if self.client_ca_file is not None:
            try:
                context.load_verify_locations(self.client_ca_file)
            except OSError as error:
                raise OSError(f"TLS client CA file {self.client_ca_file}: {error}") from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def signature(self) -> tuple[Signature, ...]:
        """A value that changes with the files.

        Raises:
            OSError: a file is missing or cannot be reached.

        """
        paths = [self.cert_file, self.key_file, self.client_ca_file]
        return tuple(signature_of(path) for path in paths if path is not None)


# -- host check -------------------------------------------------------------------------------
# A page in a user's browser can point its own host name at 127.0.0.1 and read from there (DNS
# rebinding). The Host header then still holds that name.


LOCAL_NAMES = ("localhost", "internal")
"""Names that nobody can register: RFC 6761; ``.internal`` is reserved by ICANN."""


def is_own_name(host: str, own: str) -> bool:
    """Whether the Host header ``host`` names this machine or ``own``, the configured name.

    IP addresses are accepted, because rebinding needs a name.
    """
    try:
        name = (urlsplit(f"//{host.strip()}").hostname or "").rstrip(".")
        is_own = name in {own.lower(), socket.gethostname().lower()}
        return is_own or name.rpartition(".")[2] in LOCAL_NAMES or bool(ip_address(name))
    except ValueError:
        return False


# -- requests ---------------------------------------------------------------------------------


class Request(BaseHTTPRequestHandler):
    """One request, read from its head; the answer is written in memory.

    An invalid head is answered already.
    """

    def __init__(self, head: bytes) -> None:
        self.rfile = BytesIO(head)
        self.wfile = self._answer = BytesIO()
        self.command = ""
        self.raw_requestline = self.rfile.readline()
        self.is_valid = self.parse_request()
        self.page = self.path.partition("?")[0] if self.is_valid else ""

    @property
    def answer(self) -> bytes:
        """The whole answer; empty if there is none."""
        return self._answer.getvalue()

    @property
    def reads(self) -> bool:
        """Whether it only reads."""
        return self.command in ("GET", "HEAD")

    def send(self, reply: Reply) -> None:
        """Write the answer."""
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

    def version_string(self) -> str:
        """The Server header, without a version that would help an attacker."""
        return "querypulse"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Log nothing: standard error belongs to the host."""


class Connection:
    """A client's connection, and the time that it has left for what it does now.

    Time counts in ticks of the event loop, so a paused driver does not count against clients.
    """

    def __init__(self, client: socket.socket, address: str) -> None:
        self.socket = client
        self.address = address
        self.is_incoming = True
        """Whether its request is not complete."""
        self.is_answered = False
        """Whether all that it still needs is in the buffers of the socket."""
        self.seconds_left = math.inf
        self.transport: asyncio.WriteTransport | None = None
        """Once the TLS handshake is over, if there is one."""


# -- server -----------------------------------------------------------------------------------


Job = tuple[Callable[[], object], "Future[None]"]
"""What the other thread does, and what is set when it is done."""


class HttpServer:
    """Serves the status page, ``/metrics``, ``/status``, ``/livez``, ``/readyz``, ``/watch`` and
    ``/runbooks/<alertname>``.

    ``token`` returns the bearer token that readers must present now, if any. Port 0 takes any free
    port; in place of a taken port, the server takes the next free one. On loopback, only names of
    this machine, ``external_name`` and IP addresses are accepted as Host. ``alive`` and ``token``
    must not wait: they are called in the event loop.
    """

    def __init__(
        self,
        host: str,
        port: int,
        content: Content,
        guard: Guard,
        *,
        token: Callable[[], str | None] = lambda: None,
        tls: Tls | None = None,
        external_name: str | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._guard = guard
        self._token = token
        self._tls = tls
        self._names = [name for name in (host, external_name) if name]
        self._shutdown_notice = ShutdownNotice()
        self._pages = Pages(content, self._shutdown_notice, guard)
        self._loop: Loop | None = None
        self._jobs: SimpleQueue[Job] = SimpleQueue()

    @property
    def url(self) -> str:
        """The base URL, such as ``http://127.0.0.1:9719``, with the real port once started."""
        scheme = "http" if self._tls is None else "https"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self._port}"

    def start(self) -> None:
        """Listen and serve.

        Raises:
            OSError: no port is free, the host has no address, or a TLS file is not usable.

        """
        self._context: ssl.SSLContext | None = None
        self._signature: tuple[Signature, ...] = ()
        if self._tls is not None:
            self._signature, self._context = self._tls.signature(), self._tls.context()
        self._connections: dict[Connection, asyncio.Task[None]] = {}
        """Oldest first."""
        self._slots, self._waiting = asyncio.Semaphore(MAX_REQUESTS), 0
        # A job may have set a policy that makes other event loops.
        self._events = asyncio.SelectorEventLoop()
        self._events.set_exception_handler(lambda _, context: self._report(context))
        with ExitStack() as undo:
            undo.callback(self._events.close)
            self._listener = _listening(self._host, self._port)
            undo.callback(self._listener.close)
            address, self._port = self._listener.getsockname()[:2]
            self._is_local = ip_address(address).is_loopback
            self._pages_loop = Loop("http-pages", self._work, self._guard)
            self._loop = loop = Loop("http", self._run, self._guard, last=self._finish)
            self._pages_loop.start()
            undo.callback(self._pages_loop.join, SENDING_SECONDS)
            undo.callback(self._stop_pages)
            loop.start()
            undo.pop_all()
        myself = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _leave(myself()))

    def close(self, timeout: float = 1.0, *, notice: Notice | None = Notice.STOPPED) -> None:
        """Stop listening; a second call does nothing.

        Clients waiting at ``/watch`` first receive the ``notice``, which takes up to 1 s. A crash
        that no receiver knows of sends none: their connections end without an answer.
        """
        loop, self._loop = self._loop, None
        if loop is None or loop.is_forked:
            return
        loop.stop()
        with suppress(RuntimeError):  # the thread has ended already
            self._events.call_soon_threadsafe(self._begin_end, notice, timeout)
        # Even with little time left: without the notice, watchers report a crash.
        deadline = Deadline(max(timeout, 2 * SENDING_SECONDS))
        loop.join(deadline.left)
        self._pages_loop.join(deadline.left)

    def renew(self) -> bool:
        """Read the certificate files again if they have changed, for new connections.

        Returns True if the certificate changed.

        Raises:
            OSError: they cannot be read or do not match; the old certificate stays in use.

        """
        if self._tls is None or self._loop is None:
            return False
        signature = self._tls.signature()
        if signature == self._signature:
            return False
        self._context = self._tls.context()
        self._signature = signature
        return True

    def _report(self, context: dict[str, Any]) -> None:
        """Count an error of ours; a client that is gone is none."""
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self._guard.report("exporter", error)

    def leave(self) -> None:
        """Close every socket, also those that a fork inherited and would keep the port taken."""
        self._listener.close()
        for connection in self._connections:
            connection.socket.close()

    def _finish(self) -> None:
        self.leave()
        self._events.close()
        self._stop_pages()

    def _stop_pages(self) -> None:
        self._pages_loop.stop()
        self._jobs.put((lambda: None, Future()))

    def _run(self) -> None:
        self._events.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._serving = self._events.create_task(self._tick())
        self._listen()
        try:
            with suppress(asyncio.CancelledError):
                await self._serving
        finally:
            self._events.remove_reader(self._listener)
            tasks = list(self._connections.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # The event loop closes their sockets now.
            await asyncio.sleep(0)

    def _begin_end(self, notice: Notice | None, timeout: float) -> None:
        self._ending = self._events.create_task(self._end(notice, timeout))

    async def _end(self, notice: Notice | None, timeout: float) -> None:
        if notice is not None:
            await self._shutdown_notice.say(notice, timeout)
            served = [
                task for connection, task in self._connections.items() if not connection.is_incoming
            ]
            if served:
                await asyncio.wait(served, timeout=SENDING_SECONDS)
        self._serving.cancel()

    def _listen(self) -> None:
        if not self._serving.done():
            self._events.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        """Accept a client that waits.

        Not with ``sock_accept``: it loses a client that comes as it is cancelled.
        """
        try:
            client, address = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:
            # Without free file descriptors this fails at once, repeatedly.
            self._events.remove_reader(self._listener)
            self._events.call_later(TICK_SECONDS, self._listen)
            return
        client.setblocking(False)
        self._make_room()
        connection = Connection(client, str(address[0]))
        task = self._events.create_task(self._handle(connection))
        self._connections[connection] = task
        # Also for a task that is cancelled before it begins.
        task.add_done_callback(partial(self._drop, connection))

    def _make_room(self) -> None:
        idle = [
            connection
            for connection in self._connections
            if connection.is_incoming or connection.is_answered
        ]
        if len(idle) >= MAX_IDLE:
            busiest, _ = Counter(connection.address for connection in idle).most_common(1)[0]
            oldest = next(connection for connection in idle if connection.address == busiest)
            oldest.is_incoming = oldest.is_answered = False
            self._connections[oldest].cancel()

    async def _tick(self) -> None:
        """End the connections whose time is over."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            for connection, task in list(self._connections.items()):
                connection.seconds_left -= TICK_SECONDS
                if connection.seconds_left < 0:
                    task.cancel()

    def _drop(self, connection: Connection, _: asyncio.Task[None]) -> None:
        del self._connections[connection]
        if connection.transport is not None:
            connection.transport.abort()
        else:
            connection.socket.close()

    async def _handle(self, connection: Connection) -> None:
        reader = asyncio.StreamReader(HEAD_BYTES, self._events)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._events)
        is_tls = self._context is not None
        connection.seconds_left = HANDSHAKE_SECONDS if is_tls else HEAD_SECONDS
        # A client that is gone, does not use TLS, is too slow or sends too much is not our error.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            transport, _ = await self._events.connect_accepted_socket(
                lambda: protocol, connection.socket, ssl=self._context
            )
            connection.transport = transport
            writer = asyncio.StreamWriter(transport, protocol, reader, self._events)
            await self._exchange(connection, reader, writer)

    async def _exchange(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        connection.seconds_left = HEAD_SECONDS
        request = Request(await reader.readuntil(b"\r\n\r\n"))
        connection.is_incoming = False
        connection.seconds_left = math.inf
        refusal = self._refusal(request) if request.is_valid else None
        is_light = not request.is_valid or (request.reads and request.page in ("/livez", *WATCH))
        async with nullcontext() if refusal or is_light else self._slot():
            if refusal:
                request.send(refusal)
            elif request.is_valid:
                await self._answer(connection, request, reader)
            connection.seconds_left = IO_SECONDS
            writer.write(request.answer)
            await writer.drain()
        # Over TLS a client may take its time to close.
        connection.is_answered = True
        if request.command and not request.reads:
            await _let_arrive(connection, reader, writer)
        writer.close()
        await writer.wait_closed()

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Wait for one of ``MAX_REQUESTS`` and keep it.

        Raises:
            OSError: too many requests wait already.

        """
        if self._waiting >= MAX_WAITING:
            raise OSError("the queue is full")
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._slots.release()

    async def _answer(
        self, connection: Connection, request: Request, reader: asyncio.StreamReader
    ) -> None:
        if request.page in WATCH:
            request.send(await self._pages.watch())
        elif request.page == "/livez" and request.reads:
            request.send(self._pages.get(request.page, ""))
        elif request.reads:
            accept = request.headers.get("Accept", "")
            await self._apart(lambda: request.send(self._pages.get(request.page, accept)))
        else:
            await self._silence(connection, request, reader)

    async def _apart(self, job: Callable[[], object]) -> None:
        """Wait until the other thread has done this."""
        done: Future[None] = Future()
        self._jobs.put((job, done))
        await asyncio.wrap_future(done, loop=self._events)

    def _work(self) -> None:
        job, done = self._jobs.get()
        if done.set_running_or_notify_cancel():
            self._guard.attempt("exporter", job)
            done.set_result(None)

    def _refusal(self, request: Request) -> Reply | None:
        host = request.headers.get("Host")
        if (
            host is not None
            and self._is_local
            and not any(is_own_name(host, name) for name in self._names)
        ):
            return Reply(421, b"unknown host: read from localhost or from an IP address\n")
        if not self._may_read(request) and not (request.reads and is_public(request.page)):
            challenge = (("WWW-Authenticate", "Bearer"),)
            return Reply(401, b"a bearer token is needed\n", headers=challenge)
        if not request.reads and (request.command, request.page) != ("POST", SILENCES):
            return Reply(405, b"only GET and HEAD\n", headers=(("Allow", "GET, HEAD"),))
        return None

    async def _silence(
        self, connection: Connection, request: Request, reader: asyncio.StreamReader
    ) -> None:
        length = request.headers.get("Content-Length", "")
        if self._token() is None:
            request.send(Reply(403, b"silences need a token: set http_token_file\n"))
        elif not _LENGTH.fullmatch(length):
            request.send(Reply(400, b"a body with its Content-Length is needed\n"))
        elif len(length) > _LONGEST_LENGTH or int(length) > BODY_BYTES:
            request.send(Reply(413, b"a body may have 16 KiB\n"))
        else:
            connection.seconds_left = IO_SECONDS
            body = await reader.readexactly(int(length))
            connection.seconds_left = math.inf
            await self._apart(lambda: request.send(self._pages.post(body)))

    def _may_read(self, request: Request) -> bool:
        wanted = self._token()
        if wanted is None:
            return True
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        given = token.strip().encode("latin-1", "replace")
        # The time of comparing hashes shows neither content nor length.
        is_right = compare_digest(sha256(given).digest(), sha256(wanted.encode()).digest())
        return is_right and scheme.lower() == "bearer"


async def _let_arrive(
    connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Discard the body until the client closes; closing first could destroy the answer."""
    if writer.can_write_eof():
        writer.write_eof()
    connection.seconds_left = DRAIN_SECONDS
    while await reader.read(_CHUNK_BYTES):
        pass


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens at this port, or at the next free one."""
    last = min(port + MAX_RETRIES, MAX_PORT) if port else 0
    while True:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        address: Any
        family, _, _, _, address = addresses[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE or port >= last:
                raise
        else:
            return listener
        port += 1


def _leave(server: HttpServer | None) -> None:
    if server is not None:
        server.leave()
