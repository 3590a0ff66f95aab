"""One poll of one driver: its pages -> a ``Poll``."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import TypeVar

import msgspec

from ..alerting.rules import driver_down
from ..core.deadline import Deadline
from ..exporter.shutdown_notice import Notice
from .client import Client, HttpResponse, NoAnswer
from .poll import Poll, Said

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
        answer = client.get("/livez", deadline.left)
    except NoAnswer as error:
        return Poll(began_at=began, at=clock(), said=error.said, detail=str(error))
    said, detail = _evaluated(answer)
    if said is not Said.HEALTHY:
        return Poll(began_at=began, at=clock(), said=said, detail=detail)
    found = _page(client, "/status", _Status, deadline)
    status = found or _Status()
    readiness = _page(client, "/readyz", _Readiness, deadline) or _Readiness()
    return Poll(
        began_at=began,
        at=clock(),
        said=said,
        detail=detail,
        app=status.app[:MAX_APP_CHARACTERS],
        heartbeat=status.monitor.heartbeat_timestamp,
        reports_gone=_reports_gone(found),
        unhealthy=tuple(f"{one.query}: {one.state}" for one in readiness.reasons if one.query),
    )


def await_notice(client: Client) -> WatchAnswer:
    """Wait at ``/watch`` until the driver closes, or for about 20 s.

    Raises:
        NoAnswer: the connection was not accepted, or broke: the driver may have been killed.
        OSError: this machine lacks a resource, such as sockets.

    """
    answer = client.get("/watch", WAIT_SECONDS)
    try:
        return msgspec.json.decode(answer.body, type=_Watch).status
    except UNREADABLE:
        return WatchAnswer.NOTHING


def _evaluated(answer: HttpResponse) -> tuple[Said, str]:
    detail = f"GET /livez answered {answer.code}"
    if answer.code in BARS:
        return Said.BARRED, detail
    return (Said.HEALTHY if answer.code == OK else Said.STUCK), detail


def _reports_gone(status: _Status | None) -> bool | None:
    if status is None:
        return None
    return any(one.labels.get("alertname") == driver_down.NAME for one in status.alerts)


def _page(client: Client, path: str, kind: type[T], deadline: Deadline) -> T | None:
    """The content of a page; None if it cannot be read: the driver is up in either case."""
    with suppress(NoAnswer, *UNREADABLE):
        answer = client.get(path, deadline.left)
        if answer.code in (OK, NOT_READY):
            return msgspec.json.decode(answer.body, type=kind)
    return None
