"""Polls one driver: requests, with every kind of failure kept apart, and what they say."""

from __future__ import annotations

import errno
import socket
import ssl
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from enum import Enum
from http.client import HTTPConnection, HTTPException, IncompleteRead
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from ..alerting.alert import CRITICAL, Alert
from ..alerting.finding import WHOLE_DRIVER
from ..alerting.silences import END_OF_TIME
from ..alerting.words.messages import INCIDENT, INCIDENT_URL, MUTED
from ..core.secret import Secret
from ..core.socket_deadline import SocketDeadline
from ..core.threads import Deadline
from ..exporter.status import UNREADY

# -- poll -------------------------------------------------------------------------------------
# An endpoint, and the result of one poll of it. Values only.


class Endpoint(msgspec.Struct, frozen=True):
    """One address at which a driver answers.

    ``url`` is scheme, host and port, which may be shown. ``address`` is one of the IP addresses of
    a DNS name; empty if the host's name is resolved for each request.
    """

    url: str
    address: str = ""
    loopback: bool = False
    """Whether it is on this machine, so that no network can be at fault."""

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


OpenAlerts = tuple[tuple[str, str], ...]
"""Open alerts: query and name of each."""


SUMMARY = "summary"
"""The annotation that is an alert in a sentence."""


class DriverAlert(msgspec.Struct):
    """One open alert, as a driver shows it."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    starts_at: str = ""
    """ISO 8601 in UTC."""
    cause: str = ""
    """What it was first found to be, in words that drivers share; older drivers name none."""

    @property
    def is_critical(self) -> bool:
        """Whether its severity is critical."""
        return self.labels.get("severity") == CRITICAL

    @property
    def name(self) -> str:
        """Such as ``StreamingQueryFailed``."""
        return self.labels.get("alertname", "")

    @property
    def query(self) -> str:
        """The query that it is about; ``*`` for the driver."""
        return self.labels.get("query", "")

    @property
    def incident(self) -> str:
        """In whose incident it is, if not in that of its own query."""
        return self.annotations.get(INCIDENT, "")

    @property
    def muted(self) -> str:
        """Why nobody is notified of it."""
        return self.annotations.get(MUTED, "")


class DatasetName(msgspec.Struct, frozen=True):
    """What a query reads or writes, by the names of OpenLineage."""

    namespace: str
    name: str


class DriverFreshness(msgspec.Struct, frozen=True):
    """What is left of a promise, as a driver shows it, in seconds; negative if it is overspent."""

    budget_seconds: float
    budget_left_seconds: float


class DriverQuery(msgspec.Struct):
    """One query, as a driver shows it."""

    name: str
    state: str
    ignored: bool = False
    reason: str = ""
    reads: tuple[DatasetName, ...] = ()
    writes: tuple[DatasetName, ...] = ()
    freshness: DriverFreshness | None = None
    complete_by: Annotated[datetime, Meta(tz=True)] | None = None


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one poll; times are monotonic seconds of the watcher."""

    began_at: float
    at: float
    said: Said
    detail: str = ""
    """What happened on the connection, for a person."""
    app: str = ""
    """The driver's ``app`` label, empty if unknown."""
    labels: dict[str, str] = {}
    """The labels of its settings."""
    heartbeat: float | None = None
    """When the driver's worker last evaluated, in Unix seconds of the driver's clock."""
    holds_key: bool | None = None
    """Whether it has a critical incident of its own open, under the key that the watcher uses for
    it; None if its status could not be read.
    """
    reported: OpenAlerts = ()
    """Its critical alerts that its receivers know of."""
    unhealthy: dict[str, str] = {}
    """The state of each unhealthy query."""
    end_expected: bool = False
    """Whether somebody has announced its end."""
    due: dict[str, float] = {}
    """By when the next run of a query must complete, in Unix seconds."""
    queries: tuple[DriverQuery, ...] = ()
    alerts: tuple[DriverAlert, ...] = ()

    @property
    def is_up(self) -> bool:
        """Whether a driver answered; one that refuses the watcher is up."""
        return self.said in (Said.HEALTHY, Said.BARRED)


# -- client -----------------------------------------------------------------------------------
# One HTTP request to one driver, with every kind of failure kept apart.


MAX_ANSWER_BYTES = 4 * 1024 * 1024
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
        self._host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._address = endpoint.address or self._host
        self._token = access.token
        self._context = None
        if url.scheme == "https":
            self._context = access.context or ssl.create_default_context()
        self._wire = SocketDeadline()

    def cut(self) -> None:
        """End the request in progress, and any later one, soon."""
        self._wire.cut()

    def get(self, path: str, seconds: float, most: int = MAX_ANSWER_BYTES) -> tuple[int, bytes]:
        """GET ``path``: status and at most so many bytes of the body; redirects are not followed.

        All steps may take ``seconds``, except the lookup, which has no limit.

        Raises:
            NoAnswer: the driver or the network gave no HTTP answer.
            OSError: this machine lacks a resource, such as sockets.

        """
        connection = HTTPConnection(self._host, self._port)
        connection.response_class = self._wire.response  # type: ignore[assignment]  # it makes one
        try:
            with self._wire.within(seconds):
                connection.sock = sock = self._wire.connect(self._address, self._port)
                if self._context is not None:
                    connection.sock = self._context.wrap_socket(sock, server_hostname=self._host)
                connection.request("GET", path, headers=self._headers())
                response = connection.getresponse()
                body = response.read(most)
                if response.length and len(body) < most:
                    raise IncompleteRead(body, response.length)
        except (HTTPException, OSError) as error:
            if self._wire.is_cut:
                raise NoAnswer(Said.BROKEN, "the watcher itself cut the connection") from None
            if isinstance(error, OSError) and error.errno in OURS:
                raise
            where = f"{self._address} port {self._port}"
            raise _no_answer(error, where if connection.sock is None else "", path) from None
        finally:
            connection.close()
        return response.status, body

    def _headers(self) -> dict[str, str]:
        headers = {"Connection": "close", "User-Agent": "querypulse"}
        if self._token is not None:
            token = self._token.known.encode("latin-1", "replace").decode("latin-1")
            headers["Authorization"] = f"Bearer {token}"
        return headers


def _no_answer(error: Exception, where: str, path: str) -> NoAnswer:
    """What happened, without text that the other side may have chosen.

    ``where`` no connection was made; empty if one was.
    """
    words = getattr(error, "strerror", None) or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"its certificate was not accepted: {error.verify_message}"
        return NoAnswer(Said.BARRED, text)
    if not where:
        if isinstance(error, TimeoutError):
            text = f"it accepted the connection and did not answer GET {path}"
            return NoAnswer(Said.SILENT, text)
        return NoAnswer(Said.BROKEN, f"GET {path} broke off: {words}")
    if isinstance(error, ConnectionRefusedError):
        return NoAnswer(Said.REFUSED, f"{where} refused the connection")
    if isinstance(error, ConnectionError):
        return NoAnswer(Said.BROKEN, f"{where}: {words}")
    if isinstance(error, TimeoutError):
        words = "it did not accept the connection in time"
    elif isinstance(error, socket.gaierror):
        words = f"the name cannot be resolved: {words}"
    return NoAnswer(Said.UNREACHABLE, f"{where}: {words}")


# -- polling ----------------------------------------------------------------------------------
# One poll of one driver: its pages -> a ``Poll``.


POLL_SECONDS = 3.0
"""For all requests of one poll together."""
OK = 200
NOT_FOUND = 404
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
BARS = frozenset({401, 403, 421})
MAX_APP_CHARACTERS = 200
SHOWN = frozenset({SUMMARY, INCIDENT_URL, INCIDENT, MUTED})
WAIT_SECONDS = 30.0
"""Longer than a driver keeps a request at ``/watch`` open."""


class WatchPage(msgspec.Struct):
    """All of ``/watch``: the ``status`` is a ``Notice``, or that the driver runs on."""

    status: Literal["running", "stopped", "ended", "terminated", "failed"]
    alerts: list[DriverAlert] = []


class _Monitor(msgspec.Struct):
    heartbeat_timestamp: float | None = None
    receivers: list[str] = []
    outbox_pending: dict[str, int] = {}


class _Status(msgspec.Struct):
    """The part of ``/status`` that we read; the heartbeat is the one in ``/metrics``."""

    app: str = ""
    labels: dict[str, str] = {}
    queries: list[DriverQuery] = []
    alerts: list[DriverAlert] = []
    monitor: _Monitor = msgspec.field(default_factory=_Monitor)
    end_expected: bool = False


def poll(client: Client) -> Poll:
    """Check whether the worker is alive and, if so, read the status.

    Raises:
        OSError: this machine lacks a resource, such as sockets.

    """
    began, deadline = time.monotonic(), Deadline(POLL_SECONDS)
    try:
        code, _ = client.get("/livez", deadline.left)
    except NoAnswer as error:
        return Poll(began_at=began, at=time.monotonic(), said=error.said, detail=str(error))
    detail = f"GET /livez answered {code}"
    detail += ", as no server of querypulse does" if code == NOT_FOUND else ""
    said = Said.BARRED if code in BARS else Said.HEALTHY if code == OK else Said.STUCK
    seen = Poll(began_at=began, at=time.monotonic(), said=said, detail=detail)
    if said is Said.HEALTHY:
        # The driver is up, also if its status cannot be read.
        with suppress(NoAnswer, *UNREADABLE):
            code, body = client.get("/status", deadline.left)
            if code == OK:
                seen = _with_status(seen, msgspec.json.decode(body, type=_Status))
    return replace(seen, at=time.monotonic())


def _with_status(seen: Poll, status: _Status) -> Poll:
    monitor = status.monitor
    is_delivered = bool(monitor.receivers) and not any(monitor.outbox_pending.values())
    return replace(
        seen,
        app=status.app[:MAX_APP_CHARACTERS],
        labels=status.labels,
        heartbeat=monitor.heartbeat_timestamp,
        end_expected=status.end_expected,
        due={
            query.name: query.complete_by.timestamp()
            for query in status.queries
            if query.complete_by is not None
            and not query.ignored
            and 0 < query.complete_by.timestamp() <= END_OF_TIME
        },
        holds_key=holds_key(status.alerts),
        reported=reported(status.alerts) if is_delivered else (),
        unhealthy={
            query.name: query.state
            for query in status.queries
            if query.state in UNREADY and not query.ignored
        },
        queries=tuple(status.queries),
        alerts=tuple(map(_shortened, status.alerts)),
    )


def _shortened(alert: DriverAlert) -> DriverAlert:
    """The alert with those of its words that a page of many drivers shows."""
    words = {name: text for name, text in alert.annotations.items() if name in SHOWN}
    return replace(alert, annotations=words)


def await_notice(client: Client) -> WatchPage | None:
    """Wait at ``/watch`` until the driver closes, or for about 20 s.

    None if it has no such page, or refuses the watcher.

    Raises:
        NoAnswer: the connection was not accepted, or broke: the driver may have been killed.
        OSError: this machine lacks a resource, such as sockets.

    """
    _, body = client.get("/watch", WAIT_SECONDS)
    try:
        return msgspec.json.decode(body, type=WatchPage)
    except UNREADABLE:
        return None


def reported(alerts: Iterable[DriverAlert]) -> OpenAlerts:
    """The critical ones of these open alerts: those that receivers know of, once delivered."""
    return tuple(
        (alert.query, alert.labels.get("alertname", ""))
        for alert in alerts
        if alert.is_critical and not alert.muted
    )


def holds_key(alerts: Iterable[DriverAlert | Alert]) -> bool:
    """Whether a driver with these open alerts has a critical incident under its own key."""
    return any(
        alert.is_critical and WHOLE_DRIVER in (alert.query, alert.incident) for alert in alerts
    )
