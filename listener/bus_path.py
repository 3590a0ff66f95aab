"""The preferred event path: a queue of our own on Spark's listener bus."""

from __future__ import annotations

import logging
from typing import Any

from .event_path import NotListeningError
from .event_queue import EventQueue
from .health_listener import HealthListener
from .job_counts import CountedJobs
from .ownership import Ownership
from .probing import ListenerHealth
from .session_listeners import CHECK_EVERY_SECONDS

log = logging.getLogger("querypulse")


class BusPath:
    """A listener-bus queue of our own."""

    name = "bus_queue"
    shows_shutdown = True

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
        """Which queries this process alerts for."""
        return self.source.ownership

    @property
    def terminated(self) -> bool:
        """Whether the JVM reported that a signal ends it."""
        return self.source.terminated

    def listen(self, *, by_hand: bool) -> None:
        """Start; a ``java_listener`` that the user adds only claims that session."""
        del by_hand
        self.source.claim(str(self._session.sessionUUID()))
        self._session = None
        if not self.source.java.listenOnBus(self._bus):
            raise NotListeningError("Spark's listener bus does not list the listener just added")

    def check(self, now: float) -> ListenerHealth:
        """Every few seconds: ask the bus, and register again if it dropped our listener."""
        if self._checked_at is None or now - self._checked_at >= CHECK_EVERY_SECONDS:
            self._checked_at = now
            registered, dropped = str(self.source.java.busHealth()).split("\x1f")
            again = self._health.reregistrations
            if registered != "true":
                log.warning("querypulse: the listener is not on Spark's bus; it is added again")
                registered = str(self.source.java.listenOnBus(self._bus)).lower()
                again += 1
            self._health = ListenerHealth(registered == "true", again, int(dropped))
        return self._health

    def cover(self, execution: Any) -> None:
        """Do nothing: the bus carries the events of every session."""

    def job_counts(self) -> CountedJobs | None:
        """Jobs and tasks by query id."""
        return self.source.job_counts()

    def release(self) -> None:
        """Leave the bus; our classes can be collected once no session has ``java_listener``.

        Keep ``java_listener`` where the user added it and may want to remove it.
        """
        if not self._listener.wirings:
            self.java_listener = None
        self._bus = None
        self.source.close()
