"""Hands incidents to every receiver, and to its fallback what it has not taken in time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..alert import Incident
from .delivery import Delivery, EntryStore
from .entry import OutboxEntry


class Dispatch:
    """All deliveries of one driver; used by the worker's thread, and waits for none of them.

    A receiver's fallback is told as well of what it has not taken in its route's time, and what it
    will never take; and it goes on being told until the incident ends.
    """

    def __init__(
        self,
        deliveries: Sequence[Delivery],
        *,
        spool: EntryStore | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Join the deliveries.

        Raises:
            ValueError: a fallback is the name of no receiver.

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
                    f"receiver {delivery.name!r}: fallback {fallback!r} is no receiver ({known})"
                )

    def restore(self, entries: Mapping[str, tuple[OutboxEntry, ...]]) -> tuple[Incident, ...]:
        """Take over an earlier driver's rows by receiver; returns the incidents still open.

        Call it before the next ``offer``, and let the lifecycle inherit what it returns: else
        that counts as over. Rows of a receiver that is no more are forgotten, or they would be
        inherited at every start; what it was never told of is told to the others.
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
        """Hand all open incidents to every receiver, and what is overdue to the fallbacks."""
        incidents, stale_resolves = tuple(incidents), tuple(stale_resolves)
        for delivery in self._deliveries.values():
            delivery.offer(incidents, stale_resolves)
        self._hand_over(self._wall())

    def escalate_to_fallback(self) -> None:
        """Let the fallbacks have at once what was not taken, for there will be no later."""
        self._hand_over(math.inf)

    def _hand_over(self, now_wall: float) -> None:
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
                # What is over is told once; what fires may be new again, or found no room.
                if incident.ends_at is None or incident.key not in handed
            )


def _keep_newest(newest: dict[str, Incident], incident: Incident) -> None:
    known = newest.get(incident.key)
    if known is None or incident.revision > known.revision:
        newest[incident.key] = incident
