"""Keeps a listener registered in every session with active queries, if the bus refuses ours.

Each session has its own listener bus, and Spark permanently removes a listener when a query is
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
    """A JVM listener in the ``StreamingQueryManager`` of each session with active queries.

    ``wirings`` counts how often PySpark read the listener, to add or to remove it.
    ``dropped_events`` counts the events that Spark's queue has dropped since Spark started.
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
        """Sessions from which the user removed the listener."""
        self._checked_at: float | None = None

    def add(self) -> bool:
        """Register in the first session, once; return whether Spark lists it then."""
        if not self._is_registered(self._first):
            self._first.addListener(self._listener)
        return self._is_registered(self._first)

    def cover(self, execution: Any) -> None:
        """Register in the session of a newly found query, unless it is registered there."""
        manager = execution.sparkSession().streams()
        key = manager.hashCode()
        if key in self._managers or key in self._removed:
            return
        self._managers[key] = manager
        if not self._is_registered(manager):
            manager.addListener(self._listener)

    def check(self, now: float) -> ListenerHealth:
        """Every few seconds: register the listener again where Spark dropped it."""
        if self._checked_at is None:
            # PySpark may be about to add the listener; adding it now would add it twice.
            self.health = ListenerHealth(True, 0, self._dropped_events())
            self._checked_at, self._wirings_seen = now, self._wirings()
        if now - self._checked_at < CHECK_EVERY_SECONDS:
            return self.health
        self._checked_at = now
        registered, put_back = self._put_back()
        self._release_idle()
        self.health = ListenerHealth(
            registered, self.health.reregistrations + put_back, self._dropped_events()
        )
        return self.health

    def remove(self) -> None:
        """Remove the listener from every session we hold and release the sessions."""
        for manager in self._managers.values():
            with suppress(Py4JJavaError):
                while self._is_registered(manager):
                    manager.removeListener(self._listener)
        self._managers.clear()
        self._listener = self._first = None

    def _put_back(self) -> tuple[bool, int]:
        """Whether the listener is in every session, and in how many it was added again."""
        lost = {key: one for key, one in self._managers.items() if not self._is_registered(one)}
        # PySpark reads the listener once to add it and once to remove it.
        by_hand, self._wirings_seen = self._wirings() != self._wirings_seen, self._wirings()
        if lost and by_hand:
            for key in lost:
                del self._managers[key]
            self._removed.update(lost)
            return False, 0
        for manager in lost.values():
            manager.addListener(self._listener)
            log.warning("querypulse: Spark dropped the listener; it is registered again")
        return bool(self._managers), len(lost)

    def _release_idle(self) -> None:
        """Release sessions without active queries, except the first, so that they can be freed."""
        for key, manager in list(self._managers.items()):
            if manager is not self._first and not len(manager.active()):
                del self._managers[key]

    def _is_registered(self, manager: Any) -> bool:
        return any(listener.equals(self._listener) for listener in manager.listListeners())
