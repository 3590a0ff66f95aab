"""One deadline for a whole exchange over sockets, and a way to abort it."""

from __future__ import annotations

import math
import socket
import ssl
import time
from typing import Any

from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import LocationParseError, NewConnectionError
from urllib3.util import create_urllib3_context

CONNECT_SECONDS = 3.0
"""The longest that one address, and the TLS handshake after that, may take."""


class SocketDeadline:
    """Ends an exchange by ``deadline`` (monotonic seconds), however slow the server is.

    A socket's timeout counts for one operation, so a server that sends a byte now and then would
    hold an exchange for ever. Here each operation gets only what is left. A watchdog thread would
    not do: since Python 3.12 none can be started during interpreter exit, when a dying driver's
    alert leaves.
    """

    def __init__(self) -> None:
        self.deadline = math.inf
        self.is_cut = False
        """Whether ``cut`` was called."""
        self._socket: socket.socket | None = None

    def cut(self) -> None:
        """End the exchange in progress, and any later one, at once; for another thread."""
        self.is_cut = True
        if self._socket is not None:
            try:
                # The plain method: an SSLSocket's own would pull its state from under the reader.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:
                return  # it has ended by itself

    def seconds_left(self) -> float:
        """Seconds that the current exchange may still take."""
        return -math.inf if self.is_cut else self.deadline - time.monotonic()

    def limit(self, sock: socket.socket, most_seconds: float = math.inf) -> None:
        """Limit the next operation of ``sock`` to the time that is left.

        Raises:
            TimeoutError: no time is left.

        """
        self._socket = sock
        left = self.seconds_left()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(min(left, most_seconds))

    def connect(self, host: str, port: int) -> socket.socket:
        """Connect to the first address that accepts; the lookup has no limit.

        No address may take the time of those after it.

        Raises:
            OSError: none accepted in time, or ``host`` cannot be a name.

        """
        error: OSError = TimeoutError()
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as wrong:
            raise socket.gaierror(socket.EAI_NONAME, "not a host name") from wrong
        for tried, (*kind, _, address) in enumerate(addresses):
            share = self.seconds_left() / (len(addresses) - tried)
            try:
                return self._connected(kind, address, min(share, CONNECT_SECONDS))
            except OSError as failed:
                error = failed
        raise error

    def secure(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> socket.socket:
        """Begin TLS on a socket of ``connect``."""
        self.limit(sock, CONNECT_SECONDS)
        secured = limiting(context).wrap_socket(sock, server_hostname=host)
        self.bind(secured)
        return secured

    def bind(self, sock: Any) -> None:
        """Apply the deadline to a socket that ``limiting`` made."""
        sock.exchange = self

    def pools(self) -> dict[str, type[HTTPConnectionPool]]:
        """urllib3's pools by scheme, with connections that end by the deadline at every step."""
        return {"http": self._pool(HTTPConnectionPool), "https": self._pool(HTTPSConnectionPool)}

    def _connected(self, kind: list[Any], address: Any, seconds: float) -> socket.socket:
        made = PlainSocket(*kind)
        try:
            self.limit(made, seconds)
            made.connect(address)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.limit(made, CONNECT_SECONDS)
        except OSError:
            made.close()
            raise
        made.exchange = self
        return made

    def _pool(self, base: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
        exchange = self
        plain: Any = base.ConnectionCls

        class Connection(plain):  # type: ignore[misc]  # its base is a value, chosen by scheme
            ssl_context: ssl.SSLContext | None

            def _new_conn(self) -> socket.socket:
                try:
                    return exchange.connect(self._dns_host, self.port)
                except OSError as error:
                    if isinstance(error.__cause__, UnicodeError):
                        raise LocationParseError(self.host) from error
                    raise NewConnectionError(self, "not connected") from error

            def connect(self) -> None:
                if base is HTTPSConnectionPool:
                    self.ssl_context = limiting(self.ssl_context or create_urllib3_context())
                super().connect()
                exchange.bind(self.sock)

        class Pool(base):  # type: ignore[misc,valid-type]  # as above
            ConnectionCls = Connection

        return Pool


class _Limited:
    """What sockets do within the deadline of the exchange that they are bound to."""

    exchange: SocketDeadline | None = None

    def _limit(self) -> Any:
        if self.exchange is not None:
            self.exchange.limit(self)  # type: ignore[arg-type]  # it is mixed into sockets
        return super()

    def recv(self, *args: Any) -> bytes:
        return bytes(self._limit().recv(*args))

    def recv_into(self, *args: Any) -> int:
        return int(self._limit().recv_into(*args))

    def send(self, *args: Any) -> int:
        return int(self._limit().send(*args))

    def sendall(self, *args: Any) -> None:
        self._limit().sendall(*args)


class PlainSocket(_Limited, socket.socket):
    """A socket without TLS."""


class _TlsSocket(_Limited, ssl.SSLSocket):
    """A socket with TLS; not bound before its handshake is over."""


def limiting(context: ssl.SSLContext) -> ssl.SSLContext:
    """The context, whose sockets can be bound to a deadline from now on."""
    context.sslsocket_class = _TlsSocket
    return context


def causes(error: BaseException) -> list[BaseException]:
    """The error and its causes, the root cause last."""
    chain = [error]
    while (context := chain[-1].__context__) is not None:
        chain.append(context)
    # urllib3 wraps some errors without raising the wrapper, which is then a cause only.
    return [*(link.__cause__ for link in chain if link.__cause__ is not None), *chain]
