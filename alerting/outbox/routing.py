"""Which incidents a receiver gets, and whether as a whole or alert by alert. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

import msgspec

from ..alert import ESCALATED, LASTING, Alert, Incident
from ..finding import WHOLE_DRIVER


class Route(msgspec.Struct, frozen=True):
    """The incidents that one receiver gets, and its fallback.

    ``queries`` are name patterns; an alert of the whole driver always matches. A receiver without
    ``severities`` is only a fallback. ``fallback`` names the receiver that also gets incidents
    that were not taken ``fallback_after_seconds`` after they were queued.
    """

    severities: tuple[str, ...] = ("critical", "warning")
    queries: tuple[str, ...] = ("*",)
    fallback: str | None = None
    fallback_after_seconds: float = 60.0

    def takes(self, incident: Incident) -> bool:
        """Whether the route matches the incident or one of its alerts."""
        return incident.severity in self.severities and any(
            self._matches(alert.labels["query"]) for alert in incident.alerts
        )

    def _matches(self, query: str) -> bool:
        return query == WHOLE_DRIVER or any(fnmatchcase(query, one) for one in self.queries)


class Portions:
    """Splits incidents for a receiver that groups by itself, and remembers their origin."""

    def __init__(self, *, single: bool) -> None:
        self._single = single
        self._whole: dict[str, Incident] = {}

    def offered(
        self, incidents: Iterable[Incident], holds: Callable[[str], bool]
    ) -> tuple[Incident, ...]:
        """``cut`` for all incidents that are open now."""
        incidents = tuple(incidents)
        if self._single:
            self._whole = {part.key: one for one in incidents for part in singly(one)}
        return self.cut(incidents, holds)

    def cut(
        self, incidents: Iterable[Incident], holds: Callable[[str], bool]
    ) -> tuple[Incident, ...]:
        """The incidents, or one for each of their alerts.

        Recovered alerts of a group are included only if the receiver ``holds`` them.
        """
        if not self._single:
            return tuple(incidents)
        parts = ((part, one) for one in incidents for part in singly(one))
        return tuple(
            part for part, one in parts if part.ends_at is None or part is one or holds(part.key)
        )

    def join(self, parts: Iterable[Incident]) -> tuple[Incident, ...]:
        """The whole incidents of these parts, for other receivers."""
        found = [self._whole.get(part.key, part) for part in parts]
        return tuple({one.key: one for one in found}.values())


def singly(incident: Incident) -> tuple[Incident, ...]:
    """One incident for each alert of a group, even if only one alert is left."""
    if not _is_group(incident):
        return (incident,)
    return tuple(_single(incident, alert) for alert in incident.alerts)


def _is_group(incident: Incident) -> bool:
    """Whether its key is that of a group, however many alerts are in it now."""
    return not incident.key.startswith(incident.alerts[0].key)


def _single(incident: Incident, alert: Alert) -> Incident:
    suffix = LASTING if alert.is_lasting else ESCALATED if incident.is_escalated else ""
    key = alert.key_ending(suffix) if suffix else ""
    muted = incident.muted or incident.silenced.get(alert.key, "")
    return Incident((alert,), incident.revision, muted, key)
