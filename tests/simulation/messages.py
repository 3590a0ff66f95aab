"""What receivers know and people read."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from querypulse.alerting.alert import Alert

Named = frozenset[tuple[str, str]]
"""What somebody reads in a message: the queries that fire, and of what."""
About = Callable[[Alert], Named]


class Notification(msgspec.Struct, frozen=True):
    """A person heard of something: the first time, or once more."""

    at: float
    key: str
    driver: str
    named: Named
    severity: str
    starts_at: float
    revision: int
    doubted: bool


class Open(msgspec.Struct):
    """An incident that is open at a receiver.

    ``received`` is what the last message that a person was notified by had in it, ``shown`` what
    the incident shows now; so it is with ``received_severity`` and ``severity``.
    """

    key: str
    driver: str
    opened_at: float
    received: Named
    shown: Named
    held: bool
    severity: str
    received_severity: str
    starts_at: float
    acknowledged: bool = False
    words: str = ""
    """The newest summary."""


class Closed(msgspec.Struct, frozen=True):
    """An incident that ended, and what it had shown."""

    at: float
    incident: Open
    by: str
    """The process that resolved it; empty where it lapsed."""


class Rejected(msgspec.Struct, frozen=True):
    """A message that the receiver answered with 400, and from whom."""

    at: float
    driver: str
    key: str
    revision: int
    over: bool
    named: Named
