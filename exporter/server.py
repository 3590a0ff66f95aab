"""A small HTTP server, which no silent, slow or greedy client can block.

One thread runs an event loop with a coroutine for each client, which has a limited time for its
request, and as long for its answer; a client that hardly reads its answer gives way to one that
waits. Another thread makes the pages, one at a time: a large page, or a file that hangs, does not
stop ``/livez``. The store of incidents is read in one more, because it may hang. The server of
``prometheus_client`` answers 200 on every path and does the TLS handshake in its only accepting
thread, without a timeout.
"""

from __future__ import annotations

import asyncio
import errno
import gzip
import os
import socket
import ssl
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
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

from ..core.certificates import load_authorities, load_own
from ..core.files import Signature, signature_of
from ..core.guard import Guard
from ..core.threads import Deadline, Loop, TimedCalls
from .pages import (
    LIVEZ,
    POSTS,
    RETURN_SECONDS,
    WATCH,
    Content,
    Notice,
    Reply,
    ShutdownNotice,
    is_of_store,
    is_public,
    page,
    posted,
)

CLIENT_SECONDS = 10.0
"""How long a client may take for its request, and as long until it has read its answer: the time
that Prometheus gives a scrape by default."""
SENDING_SECONDS = 0.5
"""How long a close waits for answers that are being sent, such as the shutdown notice."""
HEAD_BYTES = 64 * 1024
BODY_BYTES = 16 * 1024
MAX_DIGITS = 5
"""Digits of ``BODY_BYTES``; Python refuses to read a number of thousands of digits."""
MAX_IDLE = 64
"""Connections without a complete request, or with a complete answer.

One more closes the oldest of the busiest host."""
MAX_REQUESTS = 8
"""Requests whose answers are made and sent at once, because they take memory; more wait."""
STILL_SECONDS = 1.0
MOVING_BYTES = 64 * 1024
"""A client that reads fewer bytes than these of a large page in ``STILL_SECONDS``, which is slower
than any line, gives way to a request that waits."""
MAX_CONNECTIONS = 256
"""A request that would have to wait beside so many connections is dropped: each takes a file
descriptor of the driver."""
GZIP_FROM_BYTES = 1024
GZIP_LEVEL = 3
"""A fifth of the work of the default 9, for a fifth more bytes."""
BACKLOG = 1024
"""Connections that wait to be accepted; TCP tries one more again after a second."""
MAX_RETRIES = 16
"""How many ports after a taken one are tried, as for the Spark UI (``spark.port.maxRetries``)."""
MAX_PORT = 65535
NO_DESCRIPTOR_SECONDS = 0.1
"""The pause after an accept that failed: without free file descriptors it fails repeatedly."""
STORE_SECONDS = 3.0
"""How long a request waits for the store of incidents."""
_STORE = "incidents"
_CHUNK_BYTES = 16 * 1024
_FAILED = Reply(500, b"internal error, see the log\n")
_SILENT = Reply(503, b'{"error":"the store of incidents does not answer"}', "application/json")


class Tls(msgspec.Struct, frozen=True):
    """Paths of PEM files; with ``client_ca_file`` only clients that it has signed may read."""

    cert_file: str
    key_file: str
    client_ca_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """Read the files.

        Raises:
            CertificateError: a file cannot be used, or they do not match.

        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        names = ("http_tls_cert_file", "http_tls_key_file")
        load_own(context, self.cert_file, self.key_file, names)
        if self.client_ca_file is not None:
            load_authorities(context, self.client_ca_file, "http_tls_client_ca_file")
            context.verify_mode = ssl.CERT_REQUIRED
        return context


LOCAL_NAMES = ("localhost", "internal")
"""Names that nobody can register: RFC 6761; ``.internal`` is reserved by ICANN."""


def is_own_name(host: str, own: str) -> bool:
    """Whether the Host header ``host`` names this machine or ``own``, the configured name.

    A page in a user's browser can point its own host name at 127.0.0.1 and read from there (DNS
    rebinding); the Host header then still holds that name. IP addresses are accepted, because
    rebinding needs a name.
    """
    try:
        name = (urlsplit(f"//{host.strip()}").hostname or "").rstrip(".")
        is_own = name in {own.lower(), socket.gethostname().lower()}
        return is_own or name.rpartition(".")[2] in LOCAL_NAMES or bool(ip_address(name))
    except ValueError:
        return False


class Request(BaseHTTPRequestHandler):
    """One request, read from its head; ``answer`` is what is written for the client.

    An invalid head is answered already.
    """

    def __init__(self, head: bytes) -> None:
        self.rfile = BytesIO(head)
        self.wfile = self.answer = BytesIO()
        self.command = ""
        self.raw_requestline = self.rfile.readline()
        self.is_valid = self.parse_request()
        self.page = self.path.partition("?")[0] if self.is_valid else ""
        self.is_read = self.command in ("GET", "HEAD")

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


class HttpServer:
    """Serves the status page, ``/metrics``, ``/status``, ``/incidents``, ``/livez``, ``/readyz``,
    ``/watch`` and ``/runbooks/<alertname>``.

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
        self._content = content
        self._guard = guard
        self._token = token
        self._tls = tls
        self._names = [name for name in (host, external_name) if name]
        self._signatures: list[Signature] = []
        self._context: ssl.SSLContext | None = None
        self._shutdown_notice = ShutdownNotice()
        self._tasks: dict[socket.socket, asyncio.Task[None]] = {}
        """One for each connection."""
        self._idle: dict[socket.socket, str] = {}
        """The hosts of the connections that wait for their client, oldest first."""
        self._sending: dict[socket.socket, asyncio.WriteTransport] = {}
        """The connections that hold a slot and are sent a page, oldest first."""
        self._jobs: SimpleQueue[tuple[Callable[[], object], Future[None]]] = SimpleQueue()
        """What the other thread does, and what is set when it is done."""
        wake_pages = partial(self._jobs.put, (lambda: None, Future()))
        self._pages_loop = Loop("http-pages", self._work, guard, wake=wake_pages)
        self._lookups = TimedCalls("http-incidents")
        """Reads the store of incidents; used by the event loop."""
        self._loop = Loop("http", self._run, guard, last=self._finish)
        self._is_open = False

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
        self.renew()
        with ExitStack() as undo:
            self._listener = _listening(self._host, self._port)
            undo.callback(self._listener.close)
            address, self._port = self._listener.getsockname()[:2]
            self._is_local = ip_address(address).is_loopback
            # A job may have set a policy that makes other event loops.
            self._events = asyncio.SelectorEventLoop()
            undo.callback(self._events.close)
            self._events.set_exception_handler(lambda _, context: self._report(context))
            # A semaphore may stay locked if a task is cancelled: gh-90155, up to Python 3.10.7.
            self._slots: asyncio.Queue[Request] = asyncio.Queue(MAX_REQUESTS)
            self._closing: asyncio.Future[Notice | None] = self._events.create_future()
            self._pages_loop.start()
            undo.callback(self._pages_loop.join, SENDING_SECONDS)
            undo.callback(self._pages_loop.stop)
            self._loop.start()
            # Without a thread or a file descriptor for all of it, nothing may keep the port.
            undo.pop_all()
        self._is_open = True
        myself = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _leave(myself()))

    def close(self, timeout: float = 1.0, *, notice: Notice | None = Notice.STOPPED) -> None:
        """Stop listening; a second call does nothing.

        Clients waiting at ``/watch`` first receive the ``notice``, which takes up to 1 s. A crash
        that no receiver knows of sends none: their connections end without an answer.
        """
        if not self._is_open or self._loop.is_forked:
            return
        self._is_open = False
        self._loop.stop()
        with suppress(RuntimeError):  # the thread has ended already
            self._events.call_soon_threadsafe(self._closing.set_result, notice)
        # Even with little time left: without the notice, watchers report a crash.
        deadline = Deadline(max(timeout, RETURN_SECONDS + SENDING_SECONDS))
        self._loop.join(deadline.left)
        self._pages_loop.join(deadline.left)

    def renew(self) -> bool:
        """Read the certificate files again if they have changed, for new connections.

        Returns True if the certificate changed.

        Raises:
            OSError: they cannot be read or do not match; the old certificate stays in use.

        """
        if self._tls is None:
            return False
        paths = (self._tls.cert_file, self._tls.key_file, self._tls.client_ca_file)
        signatures = [signature_of(path) for path in paths if path is not None]
        if signatures == self._signatures:
            return False
        self._context = self._tls.context()
        self._signatures = signatures
        return True

    def _report(self, context: dict[str, Any]) -> None:
        """Count an error of ours; a client that is gone is none."""
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self._guard.report("exporter", error)

    def leave(self) -> None:
        """Close every socket, also those that a fork inherited and would keep the port taken."""
        for opened in (self._listener, *self._tasks):
            opened.close()

    def _finish(self) -> None:
        self.leave()
        self._events.close()
        self._pages_loop.stop()
        self._lookups.close()

    # -- in the event loop --------------------------------------------------------------------

    def _run(self) -> None:
        self._events.run_until_complete(self._serve())

    async def _serve(self) -> None:
        accepting = self._events.create_task(self._accept())
        if (notice := await self._closing) is not None:
            await self._shutdown_notice.say(notice)
            served = [task for client, task in self._tasks.items() if client not in self._idle]
            if served:
                await asyncio.wait(served, timeout=SENDING_SECONDS)
        # Cancelled alone, it would still be called for a connection that has just come.
        self._events.remove_reader(self._listener)
        tasks = [accepting, *self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # The event loop closes the sockets of aborted connections now.
        await asyncio.sleep(0)

    async def _accept(self) -> None:
        while True:
            try:
                client, address = await self._events.sock_accept(self._listener)
            except OSError:
                await asyncio.sleep(NO_DESCRIPTOR_SECONDS)
                continue
            if len(self._idle) >= MAX_IDLE:
                busiest, _ = Counter(self._idle.values()).most_common(1)[0]
                oldest = next(idle for idle, host in self._idle.items() if host == busiest)
                del self._idle[oldest]
                self._tasks[oldest].cancel()
            self._idle[client] = str(address[0])
            self._tasks[client] = task = self._events.create_task(self._handle(client))
            task.add_done_callback(partial(self._forget, client))
            # It begins now: a task that is cancelled before would not close its socket.
            await asyncio.sleep(0)

    def _forget(self, client: socket.socket, _: asyncio.Task[None]) -> None:
        del self._tasks[client]
        self._idle.pop(client, None)

    @contextmanager
    def _limit(self, client: socket.socket) -> Iterator[None]:
        """End the connection unless this is left within ``CLIENT_SECONDS``."""
        limit = self._events.call_later(CLIENT_SECONDS, self._tasks[client].cancel)
        try:
            yield
        finally:
            limit.cancel()

    async def _handle(self, client: socket.socket) -> None:
        """Answer the one request of a connection, and close it."""
        host = self._idle[client]
        close = client.close
        reader = asyncio.StreamReader(HEAD_BYTES, self._events)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._events)
        # A client that is gone, does not use TLS or sends too much is not our error.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            try:
                with self._limit(client):
                    transport, _ = await self._events.connect_accepted_socket(
                        lambda: protocol, client, ssl=self._context
                    )
                    close = transport.abort
                    request = Request(await reader.readuntil(b"\r\n\r\n"))
                self._idle.pop(client, None)
                is_made = await self._answer_at_once(request)
                writer = asyncio.StreamWriter(transport, protocol, reader, self._events)
                with self._limit(client):
                    with ExitStack() as slot:
                        if not is_made:
                            await self._make(request, reader, slot)
                            self._sending[client] = transport
                            slot.callback(self._sending.pop, client, None)
                        writer.write(request.answer.getvalue())
                        await writer.drain()
                    self._idle[client] = host
                    await _let_close(request, reader, writer)
            finally:
                close()

    async def _answer_at_once(self, request: Request) -> bool:
        """Whether the request needs neither the other thread nor a slot, and is answered."""
        if not request.is_valid:
            return True
        if refusal := self._refusal(request):
            request.send(refusal)
            return True
        if request.page in WATCH:
            await self._shutdown_notice.wait()
        if request.page in (LIVEZ, *WATCH):
            self._answer(request)
            return True
        return False

    async def _make(self, request: Request, reader: asyncio.StreamReader, slot: ExitStack) -> None:
        """Make the answer in the other thread, in a slot that is free again after ``slot``.

        Raises:
            OSError: too many requests wait already, or a page hangs.

        """
        if self._slots.full() and len(self._tasks) > MAX_CONNECTIONS:
            raise OSError("too many wait")
        making_room = self._events.create_task(self._make_room())
        try:
            await self._slots.put(request)
        finally:
            making_room.cancel()
        slot.callback(self._slots.get_nowait)
        # While a page hangs, clients leave and what they asked for stays.
        if self._jobs.qsize() >= MAX_REQUESTS:
            raise OSError("a page hangs")
        length = 0 if request.is_read else int(request.headers["Content-Length"])
        body = await reader.readexactly(length)
        job = partial(self._answer, request, body)
        if is_of_store(request.page):
            job = partial(request.send, await self._looked_up(request))
        done: Future[None] = Future()
        self._jobs.put((job, done))
        await asyncio.wrap_future(done, loop=self._events)

    async def _looked_up(self, request: Request) -> Reply:
        """Make the answer in the thread that reads the store of incidents, if that answers."""
        if self._lookups.is_held(_STORE):
            return _SILENT
        answer = self._lookups.begin(partial(self._reply, request))
        arrived = asyncio.Event()
        answer.add_done_callback(lambda _: self._in_loop(arrived.set))
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(arrived.wait(), STORE_SECONDS)
        if not answer.done():
            self._lookups.hold(_STORE, answer)
            return _SILENT
        return answer.result()

    def _in_loop(self, call: Callable[[], object]) -> None:
        """Call in the event loop, unless that has ended."""
        with suppress(RuntimeError):
            self._events.call_soon_threadsafe(call)

    async def _make_room(self) -> None:
        """Drop one connection whose page does not advance, and again until cancelled."""
        while True:
            sending = self._sending.items()
            left = {client: answer.get_write_buffer_size() for client, answer in sending}
            await asyncio.sleep(STILL_SECONDS)
            still = (
                client
                for client, answer in sending
                if client in left and left[client] - answer.get_write_buffer_size() < MOVING_BYTES
            )
            client = next(still, None)
            if client is not None:
                del self._sending[client]
                self._tasks[client].cancel()

    def _work(self) -> None:
        job, done = self._jobs.get()
        if done.set_running_or_notify_cancel():
            self._guard.attempt("exporter", job)
            done.set_result(None)

    def _answer(self, request: Request, body: bytes = b"") -> None:
        request.send(self._reply(request, body))

    def _reply(self, request: Request, body: bytes = b"") -> Reply:
        """The answer; a page that raises answers 500."""
        content = self._content
        accept = request.headers.get("Accept", "")
        if request.is_read:
            make = partial(page, content, request.page, accept, self._shutdown_notice.said)
        else:
            make = partial(posted, content, request.page, body)
        return self._guard.attempt("exporter", make, default=_FAILED)

    def _refusal(self, request: Request) -> Reply | None:
        host = request.headers.get("Host")
        token = self._token()
        is_strange = host is not None and not any(is_own_name(host, name) for name in self._names)
        if is_strange and self._is_local:
            return Reply(421, b"unknown host: read from localhost or from an IP address\n")
        is_open = request.is_read and is_public(request.page)
        if token is not None and not is_open and not has_token(request, token):
            challenge = (("WWW-Authenticate", "Bearer"),)
            return Reply(401, b"a bearer token is needed\n", headers=challenge)
        if request.is_read:
            return None
        if request.command != "POST" or request.page not in POSTS:
            return Reply(405, b"only GET and HEAD\n", headers=(("Allow", "GET, HEAD"),))
        if token is None:
            return Reply(403, b"a POST needs a token: set http_token_file\n")
        return _refusal_of_body(request.headers.get("Content-Length", ""))


def has_token(request: Request, token: str) -> bool:
    """Whether the request presents this bearer token."""
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    given = text.strip().encode("latin-1", "replace")
    # The time of comparing hashes shows neither content nor length.
    is_right = compare_digest(sha256(given).digest(), sha256(token.encode()).digest())
    return is_right and scheme.lower() == "bearer"


def _refusal_of_body(length: str) -> Reply | None:
    if not (length.isascii() and length.isdigit()):
        return Reply(400, b"a body with its Content-Length is needed\n")
    if len(length) > MAX_DIGITS or int(length) > BODY_BYTES:
        return Reply(413, b"a body may have 16 KiB\n")
    return None


async def _let_close(
    request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Close the connection, after a body that is not used: closing first may destroy the answer."""
    if request.command and not request.is_read:
        if writer.can_write_eof():
            writer.write_eof()
        while await reader.read(_CHUNK_BYTES):
            pass
    writer.close()
    await writer.wait_closed()


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens at this port, or at the next free one."""
    last = min(port + MAX_RETRIES, MAX_PORT) if port else 0
    while True:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
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
