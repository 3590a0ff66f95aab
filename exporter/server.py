"""A small threaded HTTP server that a single slow client cannot block.

The server of ``prometheus_client`` answers 200 on every path and does the TLS handshake in its
only accepting thread, without a timeout.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..core.guard import Guard
from ..core.loop import Loop
from .host_check import is_loopback, is_own_name
from .pages import Content, Pages
from .request_handler import Admission, RequestHandler
from .shutdown_notice import Notice, ShutdownNotice
from .threaded_server import ThreadedServer
from .tls import Tls

__all__ = ["Content", "HttpServer", "Tls"]

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

        Clients waiting at ``/watch`` first receive the ``notice``; a crash sends none. Takes up
        to 1 s if there are such clients.
        """
        server, self._server = self._server, None
        if server is None or self._loop is None:
            return
        received = notice is not None and self._shutdown_notice.say(notice, timeout)
        server.wake()
        self._loop.stop()
        self._loop.join(timeout)
        if received:
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
