"""Alerts and incidents: what receivers are told."""

from __future__ import annotations

from hashlib import sha256

import msgspec
from msgspec.structs import replace

from .finding import Severity

PREFIX_CHARACTERS = 190
MAX_KEY_CHARACTERS = 255
"""PagerDuty's limit for a ``dedup_key``."""


class Alert(msgspec.Struct, frozen=True):
    """One query is sick of one thing; ``starts_at`` and ``ends_at`` are Unix seconds."""

    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: float
    ends_at: float | None = None

    @property
    def name(self) -> str:
        """The alert's name, which is also its rule's and its runbook's."""
        return self.labels["alertname"]

    @property
    def key(self) -> str:
        """What the alert is known by everywhere: ``querypulse/<app>/<query>/<alertname>``."""
        return alert_key(self.labels["app"], self.labels["query"], self.name)

    def ended(self, wall: float, **notes: str) -> Alert:
        """The alert, over at Unix time ``wall``, with annotations that say how."""
        return replace(
            self, annotations={**self.annotations, **notes}, ends_at=max(wall, self.starts_at)
        )


class Incident(msgspec.Struct, frozen=True):
    """What one page is about: one alert, or several of one name that began together.

    ``key`` is that of its first alert and stays. ``revision`` grows with every reason to tell
    the same again: a member joined, a reminder is due. ``muted`` is why nobody is to be told
    now ("silenced until ..."); what was told before stays open all the same.
    """

    alerts: tuple[Alert, ...]
    revision: int = 0
    muted: str = ""

    @property
    def key(self) -> str:
        """The ``dedup_key`` of the whole."""
        return self.alerts[0].key

    @property
    def name(self) -> str:
        """The name all its alerts share."""
        return self.alerts[0].name

    @property
    def severity(self) -> str:
        """That of its worst alert."""
        told = {alert.labels["severity"] for alert in self.alerts}
        return next((one.value for one in Severity if one.value in told), min(told))

    @property
    def starts_at(self) -> float:
        """When the first alert began, in Unix seconds."""
        return min(alert.starts_at for alert in self.alerts)

    @property
    def ends_at(self) -> float | None:
        """When the last alert ended; None while any fires."""
        ends = [alert.ends_at for alert in self.alerts]
        known = [end for end in ends if end is not None]
        return max(known) if len(known) == len(ends) else None


def alert_key(app: str, query: str, name: str) -> str:
    """``querypulse/<app>/<query>/<alertname>``, hashed past PagerDuty's limit."""
    key = f"querypulse/{app}/{query}/{name}"
    if len(key) <= MAX_KEY_CHARACTERS:
        return key
    return f"{key[:PREFIX_CHARACTERS]}/{sha256(key.encode()).hexdigest()[:40]}"
