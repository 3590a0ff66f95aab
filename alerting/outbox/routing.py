"""Which receiver is told of what. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec

from ..alert import Incident
from ..finding import WHOLE_DRIVER


class Route(msgspec.Struct, frozen=True):
    """What one receiver is told of, and who is told when it does not listen.

    ``queries`` are name patterns; what concerns the whole driver matches always. A receiver
    with no ``severities`` is a fallback only. ``fallback`` names the receiver that is told as
    well of what was not taken ``fallback_after_seconds`` after it was queued.
    """

    severities: tuple[str, ...] = ("critical", "warning")
    queries: tuple[str, ...] = ("*",)
    fallback: str | None = None
    fallback_after_seconds: float = 60.0

    def takes(self, incident: Incident) -> bool:
        """Whether the incident, or one alert of it, is this receiver's."""
        return incident.severity in self.severities and any(
            self._matches(alert.labels["query"]) for alert in incident.alerts
        )

    def _matches(self, query: str) -> bool:
        return query == WHOLE_DRIVER or any(fnmatchcase(query, one) for one in self.queries)
