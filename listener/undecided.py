"""Holds events of runs whose query is not decided yet. Pure."""

from __future__ import annotations

import msgspec

from .events import Event
from .probing import Context

MAX_EVENTS = 1000
"""Far more than a few restarts produce within ``UNDECIDED_SECONDS``."""


class Observed(msgspec.Struct, frozen=True):
    """One event, when it arrived, and the SparkContext's state when it was read."""

    event: Event
    at: float
    context: Context = Context.RUNNING


class Undecided:
    """Holds events by query id, in their order."""

    def __init__(self) -> None:
        self._held: dict[str, list[Observed]] = {}
        self._count = 0

    def __contains__(self, query_id: str) -> bool:
        return query_id in self._held

    @property
    def is_full(self) -> bool:
        """Whether all held events must be decided now."""
        return self._count >= MAX_EVENTS

    def add(self, seen: Observed) -> None:
        """Hold an event after those of the same query."""
        self._held.setdefault(seen.event.query_id, []).append(seen)
        self._count += 1

    def take(self, query_id: str) -> list[Observed]:
        """Remove and return the held events of a query, oldest first."""
        held = self._held.pop(query_id, [])
        self._count -= len(held)
        return held

    def since(self, at: float) -> list[str]:
        """The queries with an event held since before ``at``."""
        return [key for key, held in self._held.items() if held[0].at < at]

    def all(self) -> list[str]:
        """The queries with held events."""
        return list(self._held)
