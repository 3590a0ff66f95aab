"""A small threaded HTTP server that a single slow client cannot block.

The server of ``prometheus_client`` answers 200 on every path and does the TLS handshake in its
only accepting thread, without a timeout.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ..core.guard import Guard
from ..core.threads import Loop
from .http_requests import Admission, Reception, Request, RequestHandler
from .pages import Content, Notice, Pages, ShutdownNotice

__all__ = ["Content", "HttpServer", "Tls"]


# -- slots ------------------------------------------------------------------------------------
# A bounded number of threads with a bounded queue; no client can take all of either.


MAX_WAITING = 64
"""Of one client; all clients together have twice as much."""


class RequestTask(msgspec.Struct, frozen=True):
    """What to run, and the address of the client that it is for."""

    run: Callable[[], None]
    client: str


class RequestSlots:
    """Runs at most ``limit`` tasks at once, each in a thread, and queues more.

    One client gets all slots but one and half of the queue, and the next slot goes to the client
    with the fewest: if one reads slowly or asks for much, the others still get their answers.
    """

    def __init__(self, limit: int, guard: Guard) -> None:
        self._limit = limit
        self._guard = guard
        self._running: Counter[str] = Counter()
        """How many tasks run, by client."""
        self._waiting: deque[RequestTask] = deque()
        self._changed = threading.Condition()

    def offer(self, task: RequestTask) -> bool:
        """Run ``task`` now or queue it; False if it will not run. Never waits."""
        with self._changed:
            if not self._may_run(task):
                has_room = self._has_room_for(task)
                if has_room:
                    self._waiting.append(task)
                return has_room
            self._running[task.client] += 1
        if self._guard.attempt("exporter", lambda: self._start(task), default=False):
            return True
        with self._changed:
            self._ended(task)
        return False

    def finish(self, seconds: float) -> None:
        """Wait until no task runs, for at most ``seconds``."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running, seconds)

    def _may_run(self, task: RequestTask) -> bool:
        own = self._running[task.client]
        return self._running.total() < self._limit and own < max(1, self._limit - 1)

    def _has_room_for(self, task: RequestTask) -> bool:
        own = sum(one.client == task.client for one in self._waiting)
        return len(self._waiting) < 2 * MAX_WAITING and own < MAX_WAITING

    def _start(self, task: RequestTask) -> bool:
        thread = threading.Thread(
            target=self._run, args=(task,), name="querypulse-http-request", daemon=True
        )
        thread.start()
        return True

    def _run(self, first: RequestTask) -> None:
        task: RequestTask | None = first
        while task is not None:
            self._guard.attempt("exporter", task.run)
            task = self._next(task)

    def _next(self, done: RequestTask) -> RequestTask | None:
        """The next task that may run, by client and age; without one the slot becomes free."""
        with self._changed:
            self._ended(done)
            ready = filter(self._may_run, self._waiting)
            task = min(ready, key=lambda one: self._running[one.client], default=None)
            if task is not None:
                self._waiting.remove(task)
                self._running[task.client] += 1
            return task

    def _ended(self, task: RequestTask) -> None:
        self._running[task.client] -= 1
        # Forget clients without a task: the addresses are not bounded.
        self._running += Counter()
        self._changed.notify_all()


# -- threaded server --------------------------------------------------------------------------
# Accepts and serves requests: one thread receives, another one serves each request.


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

    def cut_requests(self) -> None:
        """End the connections of all requests, so that their clients get no answer."""
        for connection in list(self._serving):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

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


# -- tls --------------------------------------------------------------------------------------
# TLS for the HTTP server: its certificate and the clients it accepts.


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

    def signature(self) -> tuple[object, ...]:
        """A value that changes with the files; Kubernetes swaps a link, which changes the inode.

        Raises:
            OSError: a file is missing or cannot be reached.

        """
        paths = [self.cert_file, self.key_file, self.client_ca_file]
        found = [Path(path).stat() for path in paths if path is not None]
        return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found)


# -- host check -------------------------------------------------------------------------------
# Which Host names a server on loopback accepts.
#
# A page in a user's browser can point its own host name at 127.0.0.1 and read from there (DNS
# rebinding). The Host header then still holds that name.


LOCAL_NAMES = ("localhost", "internal")
"""Names that nobody can register: RFC 6761; ``.internal`` is reserved by ICANN."""


def is_loopback(address: str) -> bool:
    """Whether an IP address belongs to this machine only."""
    return ip_address(address).is_loopback


def is_own_name(host: str, own: str) -> bool:
    """Whether the Host header ``host`` names this machine or ``own``, the configured name.

    IP addresses are accepted, because rebinding needs a name.
    """
    try:
        name = (urlsplit(f"//{host.strip()}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if (
        name in {own.lower(), socket.gethostname().lower()}
        or name.rpartition(".")[2] in LOCAL_NAMES
    ):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


# -- server -----------------------------------------------------------------------------------


SENDING_SECONDS = 0.5
"""How long a close waits until the shutdown notice is sent."""


class HttpServer:
    """Serves the status page, ``/metrics``, ``/status``, ``/livez``, ``/readyz``, ``/watch`` and
    ``/runbooks/<alertname>``.

    ``token`` returns the bearer token that readers must present now, if any; the threads of the
    requests call it. Port 0 takes any free port. On loopback, only names of this machine,
    ``external_name`` and IP addresses are accepted as Host. All threads are daemons.
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
        self._shutdown_notice = ShutdownNotice()
        pages = Pages(content, self._shutdown_notice, guard)
        self._handler = partial(RequestHandler, pages, Admission(token, self._knows))
        self._guard = guard
        self._tls = tls
        self._server: ThreadedServer | None = None
        self._names = [name for name in (host, external_name) if name]
        self._is_local = False
        self._signature: tuple[object, ...] = ()
        self._loop: Loop | None = None

    @property
    def url(self) -> str:
        """The base URL, such as ``http://127.0.0.1:9719``, with the real port once started."""
        scheme = "http" if self._tls is None else "https"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self._port}"

    def start(self) -> None:
        """Listen and serve.

        Raises:
            OSError: the port is taken, the host has no address, or a TLS file is not usable.

        """
        context = None
        if self._tls is not None:
            self._signature, context = self._tls.signature(), self._tls.context()
        self._server = ThreadedServer(self._host, self._port, self._handler, context, self._guard)
        address, self._port = self._server.address
        self._is_local = is_loopback(address)
        # The thread that waits on the sockets closes them, even if close() has little time.
        self._loop = Loop("http", self._server.step, self._guard, self._server.close)
        self._loop.start()

    def close(self, timeout: float = 1.0, *, notice: Notice | None = Notice.STOPPED) -> None:
        """Stop listening; a second call does nothing.

        Clients waiting at ``/watch`` first receive the ``notice``, which takes up to 1 s. A crash
        sends none: their connections end without an answer.
        """
        server, self._server = self._server, None
        if server is None or self._loop is None:
            return
        received = notice is not None and self._shutdown_notice.say(notice, timeout)
        server.wake()
        self._loop.stop()
        self._loop.join(timeout)
        if notice is None:
            server.cut_requests()
            self._shutdown_notice.end()
        elif received:
            # Even with little time left: without the notice, watchers report a crash.
            server.finish_requests(SENDING_SECONDS)

    def renew(self) -> bool:
        """Read the certificate files again if they have changed, for new connections.

        Returns True if the certificate changed.

        Raises:
            OSError: they cannot be read or do not match; the old certificate stays in use.

        """
        if self._tls is None or self._server is None:
            return False
        signature = self._tls.signature()
        if signature == self._signature:
            return False
        self._server.renew(self._tls.context())
        self._signature = signature
        return True

    def _knows(self, host: str) -> bool:
        return not self._is_local or any(is_own_name(host, name) for name in self._names)
