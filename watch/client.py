"""Polls one driver: requests, with every kind of failure kept apart, and what they say."""

from __future__ import annotations

import errno
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from urllib3 import HTTPConnectionPool, Timeout
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from ..alerting.rules import driver_down
from ..core.secret import Secret
from ..core.socket_deadline import SocketDeadline, causes
from ..core.threads import Deadline
from ..exporter.pages import Notice

# -- poll -------------------------------------------------------------------------------------
# An endpoint, and the result of one poll of it. Values only.


class Endpoint(msgspec.Struct, frozen=True):
    """One address at which a driver answers.

    ``url`` is scheme, host and port, which may be shown. ``address`` is the IP address to
    connect to, empty if the host's name is resolved for each request. ``group`` is the DNS name
    that led here: under a DNS name, drivers are known by their app, because addresses change.
    """

    url: str
    address: str = ""
    group: str = ""
    loopback: bool = False
    """Whether it is on this machine, so that no network can be at fault."""

    @property
    def listed_as(self) -> str:
        """The target that led here: the DNS name, else the URL itself."""
        return self.group or self.url

    @property
    def shown(self) -> str:
        """The address in a form for people."""
        return f"{self.url} ({self.address})" if self.address else self.url


class Said(str, Enum):
    """What a driver, or the network in its place, answered to one poll."""

    HEALTHY = "healthy"
    STUCK = "stuck"
    """It answers, but its worker does not advance."""
    SILENT = "silent"
    """It accepts the connection and does not answer, as a frozen process does."""
    REFUSED = "refused"
    """Nothing listens: the machine's answer when a process is gone."""
    BROKEN = "broken"
    """The connection ended without a complete answer."""
    UNREACHABLE = "unreachable"
    """Nothing answered; the watcher's own network may be at fault."""
    REPLACED = "replaced"
    """Another driver answers at its address."""
    BARRED = "barred"
    """It is up and refuses the watcher: a token or a certificate is wrong."""


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one poll; times are monotonic seconds of the watcher."""

    began_at: float
    at: float
    said: Said
    detail: str = ""
    """What happened on the connection, for a person."""
    app: str = ""
    """The driver's ``app`` label, empty if unknown."""
    heartbeat: float | None = None
    """When the driver's worker last evaluated, in Unix seconds of the driver's clock."""
    reports_gone: bool | None = None
    """Whether it fires ``StreamingDriverDown`` itself: Python answers, but its JVM has ended.

    None if its status could not be read.
    """
    unhealthy: tuple[str, ...] = ()
    """``name: state`` of each unhealthy query."""

    @property
    def is_up(self) -> bool:
        """Whether a driver answered; one that refuses the watcher is up."""
        return self.said in (Said.HEALTHY, Said.BARRED)


# -- client -----------------------------------------------------------------------------------
# One HTTP request to one driver, with every kind of failure kept apart.


MAX_ANSWER_BYTES = 4 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
CONNECT_SECONDS = 3.0
"""To connect, and for the TLS handshake after that."""
AT_CONNECTING = (ConnectTimeoutError, NewConnectionError)

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


class Client:
    """Sends requests to one endpoint over new connections; another thread may ``cut`` them."""

    def __init__(self, endpoint: Endpoint, access: Access) -> None:
        url = urlsplit(endpoint.url)
        self._scheme = url.scheme
        self._host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._address = endpoint.address or self._host
        self._access = access
        self._context = access.context
        if url.scheme == "https" and access.context is None:
            self._context = ssl.create_default_context()
        self._wire = SocketDeadline()

    def cut(self) -> None:
        """End the request in progress, and any later one, soon."""
        self._wire.cut()

    def get(self, path: str, seconds: float) -> tuple[int, bytes]:
        """GET ``path``: status and body; redirects are not followed.

        All steps may take ``seconds``, except the lookup, which has no limit.

        Raises:
            NoAnswer: the driver or the network gave no HTTP answer.
            OSError: this machine lacks a resource, such as sockets.

        """
        self._wire.deadline = time.monotonic() + seconds
        try:
            with self._pool() as pool:
                response = pool.urlopen(
                    "GET",
                    path,
                    headers=self._headers(),
                    redirect=False,
                    retries=False,
                    timeout=Timeout(connect=min(seconds, CONNECT_SECONDS), read=seconds),
                    preload_content=False,
                    decode_content=False,
                )
                body = b""
                while len(body) < MAX_ANSWER_BYTES and (chunk := response.read(CHUNK_BYTES)):
                    body += chunk
                return response.status, body
        except (HTTPError, OSError) as error:
            if self._wire.is_cut:
                raise NoAnswer(Said.BROKEN, "the watcher itself cut the connection") from None
            if any(isinstance(cause, AT_CONNECTING) for cause in causes(error)):
                raise self._unconnected(causes(error)[-1], seconds) from None
            raise _unanswered(causes(error)[-1], path) from None

    def _pool(self) -> HTTPConnectionPool:
        pool = self._wire.pools()[self._scheme]
        if self._scheme == "http":
            return pool(self._address, self._port)
        return pool(
            self._address, self._port, ssl_context=self._context, server_hostname=self._host
        )

    def _headers(self) -> dict[str, str]:
        host = f"[{self._host}]" if ":" in self._host else self._host
        headers = {
            "Host": f"{host}:{self._port}",
            "Connection": "close",
            "User-Agent": "querypulse",
        }
        if self._access.token is not None:
            token = self._access.token.known.encode("latin-1", "replace").decode("latin-1")
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _unconnected(self, cause: BaseException, seconds: float) -> NoAnswer:
        where = f"{self._address} port {self._port}"
        if isinstance(cause, ConnectionRefusedError):
            return NoAnswer(Said.REFUSED, f"{where} refused the connection")
        if isinstance(cause, ConnectionError):
            return NoAnswer(Said.BROKEN, f"{where}: {_words(cause)}")
        if isinstance(cause, socket.gaierror):
            detail = f"{self._host} cannot be resolved: {_words(cause)}"
            return NoAnswer(Said.UNREACHABLE, detail)
        if isinstance(cause, TimeoutError):
            detail = f"{where} did not accept the connection in {seconds:.0f} s"
            return NoAnswer(Said.UNREACHABLE, detail)
        if isinstance(cause, OSError) and cause.errno in OURS:
            raise cause
        return NoAnswer(Said.UNREACHABLE, f"{where}: {_words(cause)}")


def _unanswered(cause: BaseException, path: str) -> NoAnswer:
    if isinstance(cause, ssl.SSLCertVerificationError):
        detail = f"its certificate was not accepted: {cause.verify_message}"
        return NoAnswer(Said.BARRED, detail)
    if isinstance(cause, TimeoutError):
        return NoAnswer(Said.SILENT, f"it accepted the connection and did not answer GET {path}")
    return NoAnswer(Said.BROKEN, f"GET {path} broke off: {_words(cause)}")


def _words(error: BaseException) -> str:
    """What happened, without text that the other side may have chosen."""
    return getattr(error, "strerror", None) or type(error).__name__


# -- polling ----------------------------------------------------------------------------------
# One poll of one driver: its pages -> a ``Poll``.


POLL_SECONDS = 3.0
"""For all requests of one poll together."""
OK = 200
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
BARS = frozenset({401, 403, 421})
NOT_READY = 503
MAX_APP_CHARACTERS = 200

WAIT_SECONDS = 30.0
"""Longer than a driver keeps a request at ``/watch`` open."""

T = TypeVar("T", bound=msgspec.Struct)


class WatchAnswer(str, Enum):
    """The answer to a request at ``/watch``."""

    RUNNING = "running"
    STOPPED = Notice.STOPPED.value
    TERMINATED = Notice.TERMINATED.value
    NOTHING = "nothing"
    """It has no such page, or refuses the watcher."""

    @property
    def notice(self) -> Notice | None:
        """The shutdown notice; None if the answer is not one."""
        closes = self in (WatchAnswer.STOPPED, WatchAnswer.TERMINATED)
        return Notice(self.value) if closes else None


class _Watch(msgspec.Struct):
    """All of ``/watch``."""

    status: WatchAnswer


class _Reason(msgspec.Struct):
    state: str
    query: str | None = None


class _Readiness(msgspec.Struct):
    """The part of ``/readyz`` that we read."""

    reasons: list[_Reason] = []


class _Monitor(msgspec.Struct):
    heartbeat_timestamp: float | None = None


class _Alert(msgspec.Struct):
    labels: dict[str, str] = {}


class _Status(msgspec.Struct):
    """The part of ``/status`` that we read; the heartbeat is the one in ``/metrics``."""

    app: str = ""
    alerts: list[_Alert] = []
    monitor: _Monitor = msgspec.field(default_factory=_Monitor)


def poll(client: Client, clock: Callable[[], float] = time.monotonic) -> Poll:
    """Check whether the worker is alive and, if so, read status and readiness.

    Raises:
        OSError: this machine lacks a resource, such as sockets.

    """
    began, deadline = clock(), Deadline(POLL_SECONDS)
    try:
        code, _ = client.get("/livez", deadline.left)
    except NoAnswer as error:
        return Poll(began_at=began, at=clock(), said=error.said, detail=str(error))
    detail = f"GET /livez answered {code}"
    said = Said.BARRED if code in BARS else Said.HEALTHY if code == OK else Said.STUCK
    if said is not Said.HEALTHY:
        return Poll(began_at=began, at=clock(), said=said, detail=detail)
    page = _page(client, "/status", _Status, deadline)
    status = page or _Status()
    readiness = _page(client, "/readyz", _Readiness, deadline) or _Readiness()
    return Poll(
        began_at=began,
        at=clock(),
        said=said,
        detail=detail,
        app=status.app[:MAX_APP_CHARACTERS],
        heartbeat=status.monitor.heartbeat_timestamp,
        reports_gone=None if page is None else _reports_gone(page),
        unhealthy=tuple(
            f"{reason.query}: {reason.state}" for reason in readiness.reasons if reason.query
        ),
    )


def await_notice(client: Client) -> WatchAnswer:
    """Wait at ``/watch`` until the driver closes, or for about 20 s.

    Raises:
        NoAnswer: the connection was not accepted, or broke: the driver may have been killed.
        OSError: this machine lacks a resource, such as sockets.

    """
    _, body = client.get("/watch", WAIT_SECONDS)
    try:
        return msgspec.json.decode(body, type=_Watch).status
    except UNREADABLE:
        return WatchAnswer.NOTHING


def _reports_gone(status: _Status) -> bool:
    return any(alert.labels.get("alertname") == driver_down.NAME for alert in status.alerts)


def _page(client: Client, path: str, kind: type[T], deadline: Deadline) -> T | None:
    """The content of a page; None if it cannot be read: the driver is up in either case."""
    with suppress(NoAnswer, *UNREADABLE):
        code, body = client.get(path, deadline.left)
        if code in (OK, NOT_READY):
            return msgspec.json.decode(body, type=kind)
    return None
