"""Which receiver gets which incidents. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec

from ..alert import Incident
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
