"""Where a worker or a watcher hands over its open incidents."""

from __future__ import annotations

from typing import Protocol

from .alert import Incident


class IncidentSink(Protocol):
    """Receives the complete set of open incidents, again and again."""

    def offer(self, incidents: tuple[Incident, ...], stale_resolves: tuple[Incident, ...]) -> None:
        """Replace the set of open incidents; never waits.

        ``stale_resolves`` have ended: an earlier process may have left them open.
        """
        ...
