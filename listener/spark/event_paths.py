"""The event paths, the ways in which Spark's events reach us, best first.

==================  ====================================  ================================
``bus_queue``       a Java listener on a queue of our     all sessions, from their start;
                    own on Spark's listener bus           no Python on Spark's threads
``python_proxy``    Py4J's proxy of a Python object in    other sessions once the probe
                    each session, where our Java or       finds them; a thread and a socket
                    the bus is refused                    for each run; a port without token
==================  ====================================  ================================
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError

from ..mailbox import Mailbox, Received
from ..probe import CountedJobs, ListenerHealth
from ..state.snapshot import ALONE, Ownership
from .event_queue import EventQueue
from .health_listener import HealthListener
from .jvm import FIELD, NETWORK_ERRORS, THROWN, reason_of

log = logging.getLogger("querypulse")

CHECK_EVERY_SECONDS = 5.0
_SHARED_QUEUE_DROPS = "queue.streams.numDroppedEvents"

T = TypeVar("T")


class NotListeningError(RuntimeError):
    """Spark accepted our listener but does not list it."""


class EventPath:
    """One event path; the attaching thread calls ``listen``, the probe's thread the rest.

    Each method raises Py4JError if Spark refuses to answer.
    """

    name: str
    source: EventQueue | Mailbox[Received]
    """Where the reader takes the events from."""
    shows_shutdown = False
    """Whether ``terminated`` becomes true when a signal ends the JVM."""
    java_listener: Any = None
    """The object for PySpark's ``addListener``."""

    @property
    def ownership(self) -> Ownership:
        """Which queries this process alerts for."""
        return ALONE

    @property
    def terminated(self) -> bool:
        """Whether the JVM reported that a signal ends it."""
        return False

    def listen(self, *, by_hand: bool) -> None:
        """Start; ``by_hand`` where PySpark adds ``java_listener`` itself.

        Raises:
            NotListeningError: Spark does not list the listener just added.

        """
        raise NotImplementedError

    def check(self, now: float) -> ListenerHealth:
        """Whether our listener is still registered; ``now`` is monotonic seconds."""
        raise NotImplementedError

    def cover(self, execution: Any) -> None:
        """Listen to the session of a newly found run, a ``StreamExecution``, if necessary."""

    def job_counts(self) -> CountedJobs | None:
        """Jobs and tasks by query id, in one Py4J command; None where nothing counts them."""
        return None

    def release(self) -> None:
        """Remove our listener from Spark."""
        raise NotImplementedError


class BusPath(EventPath):
    """A listener-bus queue of our own."""

    name = "bus_queue"
    shows_shutdown = True
    source: EventQueue

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
            registered, dropped = str(self.source.java.busHealth()).split(FIELD)
            again = self._health.reregistrations
            if registered != "true":
                log.warning("querypulse: the listener is not on Spark's bus; it is added again")
                registered = str(self.source.java.listenOnBus(self._bus)).lower()
                again += 1
            self._health = ListenerHealth(registered == "true", again, int(dropped))
        return self._health

    def job_counts(self) -> CountedJobs:
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


class ProxyPath(EventPath):
    """A Python listener behind Py4J's proxy, in each session that has queries.

    Each session has its own listener bus, and Spark permanently removes a listener when a query
    is stopped while its ``onQueryStarted`` runs (``ListenerBus.removeListenerOnError``).
    """

    name = "python_proxy"

    def __init__(self, spark: Any, listener: HealthListener) -> None:
        self._listener = listener
        self.source = listener.mailbox
        self.java_listener = listener.proxy()
        # Private: as PySpark's addListener does, and there is no public way to the drop counter.
        self._gateway = spark.sparkContext._gateway  # noqa: SLF001
        self._context = spark._jsc  # noqa: SLF001
        self._first = spark._jsparkSession.streams()  # noqa: SLF001
        self._managers: dict[int, Any] = {self._first.hashCode(): self._first}
        """The ``StreamingQueryManager`` of each session that the listener is kept in."""
        self._removed: set[int] = set()
        """Sessions from which the user removed the listener."""
        self._wirings_seen = listener.wirings
        self._checked_at: float | None = None
        self._health = ListenerHealth(registered=True)

    def listen(self, *, by_hand: bool) -> None:
        """Start; also starts Py4J's callback server, as PySpark's ``addListener`` does."""
        if by_hand:
            return
        from pyspark import java_gateway

        ensure_started: Any = java_gateway.ensure_callback_server_started
        ensure_started(self._gateway)
        self._first.addListener(self.java_listener)
        if not self._is_registered(self._first):
            raise NotListeningError("Spark's session does not list the listener just added")

    def cover(self, execution: Any) -> None:
        """Register in the session of a newly found query, unless it is registered there."""
        manager = execution.sparkSession().streams()
        key = manager.hashCode()
        if key in self._managers or key in self._removed:
            return
        self._managers[key] = manager
        if not self._is_registered(manager):
            manager.addListener(self.java_listener)

    def check(self, now: float) -> ListenerHealth:
        """Every few seconds: register the listener again where Spark dropped it.

        Not at first: PySpark may be about to add the listener, which would then be there twice.
        """
        if self._checked_at is not None and now - self._checked_at < CHECK_EVERY_SECONDS:
            return self._health
        is_first, self._checked_at = self._checked_at is None, now
        registered, put_back = (True, 0) if is_first else self._put_back()
        self._wirings_seen = self._listener.wirings
        self._health = ListenerHealth(
            registered, self._health.reregistrations + put_back, self._dropped_events()
        )
        return self._health

    def release(self) -> None:
        """Leave every session and release it."""
        for manager in self._managers.values():
            with suppress(Py4JJavaError):
                while self._is_registered(manager):
                    manager.removeListener(self.java_listener)
        self._managers.clear()
        self.java_listener = self._first = self._context = None

    def _put_back(self) -> tuple[bool, int]:
        """Whether the listener is in every session, and in how many it was added again."""
        lost = {
            key: manager
            for key, manager in self._managers.items()
            if not self._is_registered(manager)
        }
        # PySpark reads the listener once to add it and once to remove it.
        if lost and self._listener.wirings != self._wirings_seen:
            for key in lost:
                del self._managers[key]
            self._removed.update(lost)
            return False, 0
        for manager in lost.values():
            manager.addListener(self.java_listener)
            log.warning("querypulse: Spark dropped the listener; it is registered again")
        return bool(self._managers), len(lost)

    def _is_registered(self, manager: Any) -> bool:
        return any(listener.equals(self.java_listener) for listener in manager.listListeners())

    def _dropped_events(self) -> int | None:
        """Events that Spark's queue of streaming listeners has dropped since its start."""
        try:
            registry = self._context.sc().listenerBus().metrics().metricRegistry()
            return int(registry.counter(_SHARED_QUEUE_DROPS).getCount())
        except NETWORK_ERRORS:
            raise
        except Py4JError:
            return None


def open_path(spark: Any, listener: HealthListener, *, by_hand: bool) -> EventPath:
    """Listen on the best path that this driver allows.

    Raises:
        Py4JError: the driver allows no path, or the JVM does not answer.
        NotListeningError: Spark does not list the listener just added.

    """
    queue = _unless_refused("a class of ours", lambda: EventQueue(spark))
    if queue is not None:

        def listen() -> BusPath:
            path = BusPath(queue, spark, listener)
            path.listen(by_hand=by_hand)
            return path

        path = _unless_refused(BusPath.name, listen)
        if path is not None:
            return path
        _unless_refused("an end", queue.close)
    proxy = ProxyPath(spark, listener)
    proxy.listen(by_hand=by_hand)
    return proxy


def _unless_refused(what: str, action: Callable[[], T]) -> T | None:
    """What ``action`` returns; None where this driver refuses it. A lost JVM still raises."""
    try:
        return action()
    except NETWORK_ERRORS:
        raise
    except (*THROWN, OSError, ValueError, NotListeningError) as error:
        log.warning("querypulse: this driver refuses %s: %s", what, reason_of(error))
        return None
