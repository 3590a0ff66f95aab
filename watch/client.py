"""One HTTP request to one driver, with every kind of failure kept apart."""

from __future__ import annotations

import errno
import socket
import ssl
import time
from http.client import HTTPException, HTTPResponse
from io import BytesIO
from urllib.parse import urlsplit

import msgspec

from ..core.secret import Secret
from ..core.socket_deadline import SocketDeadline
from .poll import Endpoint, Said

MAX_ANSWER_BYTES = 4 * 1024 * 1024
CHUNK_BYTES = 64 * 1024

OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL})
"""Errors of this machine, not of the driver."""


class NoAnswer(Exception):  # noqa: N818 - an outcome, with a message for a person
    """There was no HTTP answer: ``said`` is the outcome, and the message explains it."""

    def __init__(self, said: Said, detail: str) -> None:
        super().__init__(detail)
        self.said = said


class Access(msgspec.Struct, frozen=True):
    """Access to drivers: the bearer token as last read, and how certificates are verified."""

    token: Secret | None = None
    context: ssl.SSLContext | None = None


class HttpResponse(msgspec.Struct, frozen=True):
    """One HTTP answer; redirects are not followed."""

    code: int
    body: bytes


class Client(SocketDeadline):
    """Sends requests to one endpoint over new connections; another thread may ``cut`` them."""

    def __init__(self, endpoint: Endpoint, access: Access) -> None:
        super().__init__()
        url = urlsplit(endpoint.url)
        self._host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._address = endpoint.address or self._host
        self._secure = url.scheme == "https"
        self._access = access

    def get(self, path: str, seconds: float) -> HttpResponse:
        """GET ``path``; all steps may take ``seconds``, except the lookup, which has no limit.

        Raises:
            NoAnswer: the driver or the network gave no HTTP answer.
            OSError: this machine lacks a resource, such as sockets.

        """
        self.deadline = time.monotonic() + seconds
        try:
            return self._exchange(self._connect(seconds), path)
        except NoAnswer:
            if self.is_cut:
                raise NoAnswer(Said.BROKEN, "the watcher itself cut the connection") from None
            raise

    def _connect(self, seconds: float) -> socket.socket:
        where = f"{self._address} port {self._port}"
        try:
            return self.connect_within(self._address, self._port)
        except ConnectionRefusedError:
            raise NoAnswer(Said.REFUSED, f"{where} refused the connection") from None
        except ConnectionError as error:
            raise NoAnswer(Said.BROKEN, f"{where}: {_words(error)}") from None
        except socket.gaierror as error:
            detail = f"{self._host} cannot be resolved: {_words(error)}"
            raise NoAnswer(Said.UNREACHABLE, detail) from None
        except TimeoutError:
            detail = f"{where} did not accept the connection in {seconds:.0f} s"
            raise NoAnswer(Said.UNREACHABLE, detail) from None
        except OSError as error:
            if error.errno in OURS:
                raise
            raise NoAnswer(Said.UNREACHABLE, f"{where}: {_words(error)}") from None

    def _exchange(self, connection: socket.socket, path: str) -> HttpResponse:
        try:
            connection = self._secured(connection)
            self.limit(connection)
            connection.sendall(self._request(path))
            return _parsed(self._received(connection))
        except ssl.SSLCertVerificationError as error:
            detail = f"its certificate was not accepted: {error.verify_message}"
            raise NoAnswer(Said.BARRED, detail) from None
        except TimeoutError:
            detail = f"it accepted the connection and did not answer GET {path}"
            raise NoAnswer(Said.SILENT, detail) from None
        except (OSError, HTTPException) as error:
            raise NoAnswer(Said.BROKEN, f"GET {path} broke off: {_words(error)}") from None
        finally:
            connection.close()

    def _secured(self, connection: socket.socket) -> socket.socket:
        if not self._secure:
            return connection
        context = self._access.context or ssl.create_default_context()
        return self.secured(connection, context, self._host)

    def _received(self, connection: socket.socket) -> bytes:
        """Everything until the other side closes, within the deadline.

        A parser that reads the socket would restart its timeout with every byte.
        """
        received = bytearray()
        while len(received) < MAX_ANSWER_BYTES:
            self.limit(connection)
            chunk = connection.recv(CHUNK_BYTES)
            if not chunk:
                break
            received += chunk
        return bytes(received)

    def _request(self, path: str) -> bytes:
        host = f"[{self._host}]" if ":" in self._host else self._host
        lines = [f"GET {path} HTTP/1.0", f"Host: {host}:{self._port}", "Connection: close"]
        if self._access.token is not None:
            lines.append(f"Authorization: Bearer {self._access.token.known}")
        return "\r\n".join([*lines, "User-Agent: querypulse", "", ""]).encode("latin-1", "replace")


class _Bytes:
    """Received bytes in the shape that the standard parser needs: a socket."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, _mode: str) -> BytesIO:
        return BytesIO(self._received)


def _parsed(received: bytes) -> HttpResponse:
    response = HTTPResponse(_Bytes(received))  # type: ignore[arg-type] # it uses only makefile
    response.begin()
    return HttpResponse(response.status, response.read())


def _words(error: BaseException) -> str:
    """What happened, without text that the other side may have chosen."""
    return getattr(error, "strerror", None) or type(error).__name__
