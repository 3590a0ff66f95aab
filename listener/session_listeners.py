"""Keeps a listener registered in every session whose queries live, where the bus refuses ours.

A session has a listener bus of its own, and Spark drops a listener for good when a query is
stopped while its ``onQueryStarted`` runs (``ListenerBus.removeListenerOnError``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError

from .probing import ListenerHealth

log = logging.getLogger("querypulse")

CHECK_EVERY_SECONDS = 5.0


class SessionListeners:
    """A JVM listener in the ``StreamingQueryManager`` of each session with living queries.

    ``wirings`` counts how often PySpark has asked for the listener, to add or to remove it.
    ``dropped_events`` counts what Spark's queue has dropped since Spark started.
    """

    def __init__(
        self,
        listener: Any,
        first: Any,
        *,
        wirings: Callable[[], int],
        dropped_events: Callable[[], int | None],
    ) -> None:
        self.health = ListenerHealth(registered=True)
        self._listener = listener
        self._first = first
        self._wirings = wirings
        self._wirings_seen = wirings()
        self._dropped_events = dropped_events
        self._managers: dict[int, Any] = {first.hashCode(): first}
        self._removed: set[int] = set()
        """Sessions whose user has taken the listener out."""
        self._checked_at: float | None = None

    def add(self) -> bool:
        """Register in the first session, once; whether it is registered then."""
        if not self._is_registered(self._first):
            self._first.addListener(self._listener)
        return self._is_registered(self._first)

    def cover(self, execution: Any) -> None:
        """Register in the session of a query just met, unless it is already."""
        manager = execution.sparkSession().streams()
        key = manager.hashCode()
        if key in self._managers or key in self._removed:
            return
        self._managers[key] = manager
        if not self._is_registered(manager):
            manager.addListener(self._listener)

    def check(self, now: float) -> ListenerHealth:
        """Every few seconds: put the listener back where Spark has dropped it."""
        if self._checked_at is None:
            # PySpark may be about to add it: to find it missing now would be to add it twice.
            self.health = ListenerHealth(True, 0, self._dropped_events())
            self._checked_at, self._wirings_seen = now, self._wirings()
        if now - self._checked_at < CHECK_EVERY_SECONDS:
            return self.health
        self._checked_at = now
        registered, put_back = self._put_back()
        self._let_go()
        self.health = ListenerHealth(
            registered, self.health.reregistrations + put_back, self._dropped_events()
        )
        return self.health

    def remove(self) -> None:
        """Take the listener out of every session we still hold, and let go of them."""
        for manager in self._managers.values():
            with suppress(Py4JJavaError):
                while self._is_registered(manager):
                    manager.removeListener(self._listener)
        self._managers.clear()
        self._listener = self._first = None

    def _put_back(self) -> tuple[bool, int]:
        """Whether the listener is in every session, and in how many it had to be put back."""
        lost = {key: one for key, one in self._managers.items() if not self._is_registered(one)}
        # PySpark reads the listener to add it and once more to remove it.
        by_hand, self._wirings_seen = self._wirings() != self._wirings_seen, self._wirings()
        if lost and by_hand:
            for key in lost:
                del self._managers[key]
            self._removed.update(lost)
            return False, 0
        for manager in lost.values():
            manager.addListener(self._listener)
            log.warning("querypulse: Spark had dropped the listener; it is registered again")
        return bool(self._managers), len(lost)

    def _let_go(self) -> None:
        """Hold no session but the first whose queries have all ended: it could not be freed."""
        for key, manager in list(self._managers.items()):
            if manager is not self._first and not len(manager.active()):
                del self._managers[key]

    def _is_registered(self, manager: Any) -> bool:
        return any(listener.equals(self._listener) for listener in manager.listListeners())
