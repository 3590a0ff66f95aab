"""Keeps the listener registered in every session whose queries we have met.

A listener bus belongs to one SparkSession, and Spark drops a listener for good when a
query is stopped while its ``onQueryStarted`` runs (``ListenerBus.removeListenerOnError``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from .health_listener import HealthListener
from .probing import ListenerHealth

log = logging.getLogger("querypulse")

CHECK_EVERY_SECONDS = 5.0
_DROPPED = "queue.streams.numDroppedEvents"


class SparkListeners:
    """The ``StreamingQueryManager`` of each session, and our listener in it.

    ``dropped_events`` counts what Spark's queue has dropped; asked as rarely as Spark is checked.
    """

    def __init__(
        self, listener: HealthListener, first: Any, dropped_events: Callable[[], int]
    ) -> None:
        self.health = ListenerHealth(registered=True)
        self._listener = listener
        self._wirings = listener.wirings
        self._dropped_events = dropped_events
        self._managers: dict[int, Any] = {first.hashCode(): first}
        self._checked_at: float | None = None

    def cover(self, execution: Any) -> None:
        """Listen in the session of a query just met, if we do not yet."""
        manager = execution.sparkSession().streams()
        key = manager.hashCode()
        if key in self._managers or self._listener.wrapper is None:
            return
        self._managers[key] = manager
        if not self._is_registered(manager):
            manager.addListener(self._listener.wrapper)

    def check(self, now: float) -> ListenerHealth:
        """Every few seconds: put the listener back where Spark has dropped it."""
        if self._checked_at is None:
            # PySpark is about to add it: to find it missing now would be to add it twice.
            self._checked_at = now
        if self._listener.wrapper is None or now - self._checked_at < CHECK_EVERY_SECONDS:
            return self.health
        self._checked_at = now
        registered, put_back = self._put_back()
        self.health = ListenerHealth(
            registered, self.health.reregistrations + put_back, self._dropped_events()
        )
        return self.health

    def remove(self) -> None:
        """Take the listener out of every session."""
        for manager in self._managers.values():
            while self._is_registered(manager):
                manager.removeListener(self._listener.wrapper)

    def _put_back(self) -> tuple[bool, int]:
        """Whether the listener is in every session, and in how many it had to be put back."""
        lost = [m for m in self._managers.values() if not self._is_registered(m)]
        if lost and self._taken_out_by_hand():
            return False, 0
        for manager in lost:
            manager.addListener(self._listener.wrapper)
            log.warning("querypulse: Spark had dropped the listener; registered it again")
        return True, len(lost)

    def _is_registered(self, manager: Any) -> bool:
        known = manager.listListeners()
        return any(listener.equals(self._listener.wrapper) for listener in known)

    def _taken_out_by_hand(self) -> bool:
        # PySpark reads _jlistener once to add and once more to remove.
        return self._listener.wirings > self._wirings


def count_dropped_events(java_context: Any) -> int:
    """What the queue of all streaming listeners has dropped since Spark's start.

    Raises:
        Py4JError: this Spark does not tell.

    """
    registry = java_context.sc().listenerBus().metrics().metricRegistry()
    return int(registry.counter(_DROPPED).getCount())
