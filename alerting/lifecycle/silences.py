"""Silences: for a while nobody is to be told of what matches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from fnmatch import fnmatchcase

import msgspec

from ..alert import Alert

END_OF_TIME = 253_402_300_799.0
"""The last second of the year 9999, the last that can be written."""


class Silence(msgspec.Struct, frozen=True):
    """Alerts whose app, query and name match the patterns notify nobody until Unix time ``until``.

    The whole driver's alerts have the query ``*``, which the pattern ``*`` alone matches.
    """

    queries: str
    until: float
    alertname: str = "*"
    reason: str = ""
    app: str = "*"

    def covers(self, alert: Alert, wall: float) -> bool:
        """Whether ``alert`` is not to be told at Unix time ``wall``."""
        return (
            wall < self.until
            and fnmatchcase(alert.labels["app"], self.app)
            and fnmatchcase(alert.labels["query"], self.queries)
            and fnmatchcase(alert.name, self.alertname)
        )

    def __str__(self) -> str:
        """As people read it: ``silenced until <ISO 8601>: <reason>``."""
        text = f"silenced until {end_text(self.until)}"
        return f"{text}: {self.reason}" if self.reason else text


def end_text(wall: float) -> str:
    """Unix seconds as RFC 3339 in UTC; what lies beyond the year 9999 is its last second."""
    until = datetime.fromtimestamp(min(wall, END_OF_TIME), timezone.utc)
    return until.isoformat(timespec="seconds").replace("+00:00", "Z")


def silence_of(alert: Alert, silences: Iterable[Silence], wall: float) -> Silence | None:
    """The silence that covers ``alert`` longest; None when it is to be told."""
    covering = [one for one in silences if one.covers(alert, wall)]
    return max(covering, key=lambda one: one.until, default=None)


def why_muted(alerts: Iterable[Alert], silences: Sequence[Silence], wall: float) -> str:
    """Why nobody is to be told of ``alerts``; empty when one of them is not silenced."""
    found = [silence_of(alert, silences, wall) for alert in alerts]
    known = [silence for silence in found if silence is not None]
    if not known or len(known) < len(found):
        return ""
    return str(min(known, key=lambda one: one.until))
