"""The best way: a queue of our own on Spark's listener bus."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from .event_path import NotListeningError
from .event_queue import EventQueue
from .health_listener import HealthListener
from .job_counts import JobCounts
from .ownership import Ownership
from .probing import ListenerHealth
from .session_listeners import CHECK_EVERY_SECONDS

log = logging.getLogger("querypulse")


class BusPath:
    """A listener-bus queue of our own."""

    name = "bus_queue"

    def __init__(self, queue: EventQueue, spark: Any, listener: HealthListener) -> None:
        self._listener = listener
        self.source = queue
        self.java_listener = queue.java.sessionListener()
        # Private: there is no public way to the bus, nor to a session's id.
        self._bus = spark._jsc.sc().listenerBus()  # noqa: SLF001
        self._session = spark._jsparkSession  # noqa: SLF001
        self._checked_at: float | None = None
        self._health = ListenerHealth(registered=True)

    @property
    def ownership(self) -> Ownership:
        """Which queries this process answers for."""
        return self.source.ownership

    @property
    def terminated(self) -> bool:
        """Whether the JVM has said that a signal ends it."""
        return self.source.terminated

    def listen(self, *, by_hand: bool) -> None:
        """Begin; whoever adds ``java_listener`` by hand adds one that only claims the session."""
        del by_hand
        self.source.claim(str(self._session.sessionUUID()))
        self._session = None
        if not self.source.java.listenOnBus(self._bus):
            raise NotListeningError("the listener bus does not know the listener just added")

    def check(self, now: float) -> ListenerHealth:
        """Every few seconds: ask the bus, and listen again where it has dropped us."""
        if self._checked_at is None or now - self._checked_at >= CHECK_EVERY_SECONDS:
            self._checked_at = now
            registered, dropped = str(self.source.java.busHealth()).split("\x1f")
            again = self._health.reregistrations
            if registered != "true":
                log.warning("querypulse: Spark had dropped the listener; it is registered again")
                registered = str(self.source.java.listenOnBus(self._bus)).lower()
                again += 1
            self._health = ListenerHealth(registered == "true", again, int(dropped))
        return self._health

    def cover(self, execution: Any) -> None:
        """Nothing: the bus carries the events of every session."""

    def job_counts(self) -> Mapping[str, JobCounts] | None:
        """What has run for each query."""
        return self.source.job_counts()

    def release(self) -> None:
        """Leave the bus; our classes are garbage once no session has ``java_listener``.

        It stays known where somebody has added it by hand, and may want to remove it.
        """
        if not self._listener.wirings:
            self.java_listener = None
        self._bus = None
        self.source.close()
