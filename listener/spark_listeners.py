"""Keeps the listener registered in every session whose queries we have met.

A listener bus belongs to one SparkSession, and Spark drops a listener for good when a
query is stopped while its ``onQueryStarted`` runs (``ListenerBus.removeListenerOnError``).
"""

from __future__ import annotations

import logging
from typing import Any

from .health_listener import HealthListener
from .probing import ListenerHealth

log = logging.getLogger("querypulse")

CHECK_EVERY_SECONDS = 5.0


class SparkListeners:
    """The ``StreamingQueryManager`` of each session, and our listener in it."""

    def __init__(self, listener: HealthListener, first: Any) -> None:
        self.health = ListenerHealth(registered=True)
        self._listener = listener
        self._wirings = listener.wirings
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
        lost = [m for m in self._managers.values() if not self._is_registered(m)]
        if lost and self._taken_out_by_hand():
            self.health = ListenerHealth(False, self.health.reregistrations)
            return self.health
        for manager in lost:
            manager.addListener(self._listener.wrapper)
            log.warning("querypulse: Spark had dropped the listener; registered it again")
        self.health = ListenerHealth(True, self.health.reregistrations + len(lost))
        return self.health

    def remove(self) -> None:
        """Take the listener out of every session."""
        for manager in self._managers.values():
            while self._is_registered(manager):
                manager.removeListener(self._listener.wrapper)

    def _is_registered(self, manager: Any) -> bool:
        known = manager.listListeners()
        return any(listener.equals(self._listener.wrapper) for listener in known)

    def _taken_out_by_hand(self) -> bool:
        # PySpark reads _jlistener once to add and once more to remove.
        return self._listener.wirings > self._wirings
