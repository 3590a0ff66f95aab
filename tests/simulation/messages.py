"""The content of receivers and of notifications."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from querypulse.alerting.alert import Alert

Named = frozenset[tuple[str, str]]
"""The content of a message: the firing queries and their alerts."""
About = Callable[[Alert], Named]


class Notification(msgspec.Struct, frozen=True):
    """A receiver notified a person: the first time, or again."""

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

    ``received`` is the content of the last message that notified a person, ``shown`` the present
    content of the incident; likewise ``received_severity`` and ``severity``.
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
    words: str = ""
    """The newest summary."""


class Closed(msgspec.Struct, frozen=True):
    """An incident that ended, with its last content."""

    at: float
    incident: Open
    by: str
    """The process that resolved it; empty if it expired."""


class Rejected(msgspec.Struct, frozen=True):
    """A message that the receiver answered with 400, and its sender."""

    at: float
    driver: str
    key: str
    revision: int
    over: bool
    named: Named
