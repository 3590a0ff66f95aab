"""Silences suppress notifications for matching alerts for a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from fnmatch import fnmatchcase

import msgspec

from .alert import Alert

END_OF_TIME = 253_402_300_799.0
"""The last second of the year 9999, the latest time that can be formatted."""


class Silence(msgspec.Struct, frozen=True):
    """Suppress alerts whose app, query and name match the patterns until Unix time ``until``.

    Alerts of the whole driver have the query ``*``, which only the pattern ``*`` matches.
    """

    queries: str
    until: float
    alertname: str = "*"
    reason: str = ""
    app: str = "*"

    def covers(self, alert: Alert, wall: float) -> bool:
        """Whether ``alert`` is silenced at Unix time ``wall``."""
        return (
            wall < self.until
            and fnmatchcase(alert.labels["app"], self.app)
            and fnmatchcase(alert.labels["query"], self.queries)
            and fnmatchcase(alert.name, self.alertname)
        )

    def __str__(self) -> str:
        """A readable text: ``silenced until <ISO 8601>: <reason>``."""
        text = f"silenced until {end_text(self.until)}"
        return f"{text}: {self.reason}" if self.reason else text


def end_text(wall: float) -> str:
    """Unix seconds as RFC 3339 in UTC; times after the year 9999 become its last second."""
    until = datetime.fromtimestamp(min(wall, END_OF_TIME), timezone.utc)
    return until.isoformat(timespec="seconds").replace("+00:00", "Z")


def silence_of(alert: Alert, silences: Iterable[Silence], wall: float) -> Silence | None:
    """The silence that covers ``alert`` longest; None if none covers it."""
    covering = [one for one in silences if one.covers(alert, wall)]
    return max(covering, key=lambda one: one.until, default=None)


def why_muted(alerts: Iterable[Alert], silences: Sequence[Silence], wall: float) -> str:
    """Why ``alerts`` are not sent; empty if one of them is not silenced."""
    found = [silence_of(alert, silences, wall) for alert in alerts]
    known = [silence for silence in found if silence is not None]
    if not known or len(known) < len(found):
        return ""
    return str(min(known, key=lambda one: one.until))
