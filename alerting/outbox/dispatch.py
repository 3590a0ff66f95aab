"""Hands incidents to every receiver, and overdue ones to its fallback."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..alert import Incident
from .delivery import Delivery, EntryStore
from .entry import OutboxEntry


class Dispatch:
    """All deliveries of one driver; used by the worker's thread, and never waits for them.

    The fallback of a receiver also gets the incidents that the receiver has not taken within its
    route's time, or will never take. It then gets all their updates until they end.
    """

    def __init__(
        self,
        deliveries: Sequence[Delivery],
        *,
        spool: EntryStore | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Connect the deliveries with their fallbacks.

        Raises:
            ValueError: a fallback does not name a receiver.

        """
        self._deliveries = {delivery.name: delivery for delivery in deliveries}
        self._spool = spool
        self._wall = wall
        self._handed: dict[str, frozenset[str]] = {}
        for delivery in deliveries:
            fallback = delivery.route.fallback
            if fallback is not None and fallback not in self._deliveries:
                known = ", ".join(sorted(self._deliveries))
                raise ValueError(
                    f"receiver {delivery.name!r}: no receiver has the name of its fallback "
                    f"{fallback!r} (receivers: {known})"
                )

    def restore(self, entries: Mapping[str, tuple[OutboxEntry, ...]]) -> tuple[Incident, ...]:
        """Restore the entries of an earlier driver by receiver; return the open incidents.

        Call it before the next ``offer``, and pass its result to ``Lifecycle.restore``: otherwise
        these incidents count as ended. Entries of a removed receiver are deleted, or every start
        would restore them; incidents that it never got are sent to the others.
        """
        for name, delivery in self._deliveries.items():
            delivery.restore(entries.get(name, ()))
        newest: dict[str, Incident] = {}
        for name, held in entries.items():
            is_ours = name in self._deliveries
            if not is_ours and self._spool is not None:
                self._spool.offer(name, ())
            for entry in held:
                if not entry.is_over and (is_ours or entry.is_unnotified):
                    _keep_newest(newest, entry.incident)
        return tuple(newest.values())

    def offer(self, incidents: Iterable[Incident], stale_resolves: Iterable[Incident] = ()) -> None:
        """Hand all open incidents to every receiver, and overdue ones to the fallbacks."""
        incidents, stale_resolves = tuple(incidents), tuple(stale_resolves)
        for delivery in self._deliveries.values():
            delivery.offer(incidents, stale_resolves)
        self._escalate(self._wall())

    def escalate_to_fallback(self) -> None:
        """Give the fallbacks at once what was not taken: the process ends."""
        self._escalate(math.inf)

    def _escalate(self, now_wall: float) -> None:
        for name, delivery in self._deliveries.items():
            if delivery.route.fallback is None:
                continue
            fallback = self._deliveries[delivery.route.fallback]
            overdue = delivery.overdue_incidents(now_wall)
            handed = self._handed.get(name, frozenset())
            self._handed[name] = frozenset(incident.key for incident in overdue)
            fallback.escalate_to_fallback(
                incident
                for incident in overdue
                # Send a resolved one once; a firing one may be new again, or had no room.
                if incident.ends_at is None or incident.key not in handed
            )


def _keep_newest(newest: dict[str, Incident], incident: Incident) -> None:
    known = newest.get(incident.key)
    if known is None or incident.revision > known.revision:
        newest[incident.key] = incident
