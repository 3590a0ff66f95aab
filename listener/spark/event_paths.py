"""The event paths, the ways in which Spark's events reach us, best first.

============================ ==================================== ==============================
``bus_queue``                a Java listener on a queue of our    all sessions, from their start;
                             own on Spark's listener bus          no Python on Spark's threads
``session_listeners``        the same Java class, added to each   other sessions once the probe
                             session, where the bus refuses it    finds them
``python_proxy``             Py4J's proxy of a Python object,     a thread and a socket for each
                             where Janino is refused              run; a local port without token
``python_callbacks``         PySpark's own listener, where even   as above, and slower
                             the proxy is refused
============================ ==================================== ==============================
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError

from ..mailbox import EventSource
from ..probe import CountedJobs, ListenerHealth
from ..snapshot import ALONE, Ownership
from .event_queue import EventQueue
from .health_listener import HealthListener
from .jvm import NETWORK_ERRORS, THROWN, reason_of

log = logging.getLogger("querypulse")


# -- event channel ----------------------------------------------------------------------------
# The probe's interface to the event path: check it, extend it, read its job counts.


class EventChannel(Protocol):
    """Our listener inside Spark."""

    def check(self, now: float) -> ListenerHealth:
        """Whether our listener is still registered; ``now`` is monotonic seconds.

        Raises:
            Py4JError: Spark refuses to answer.

        """
        ...

    def cover(self, execution: Any) -> None:
        """Listen to the session of a newly found run, a ``StreamExecution``.

        Raises:
            Py4JError: Spark refuses the listener.

        """
        ...

    def release(self) -> None:
        """Remove our listener from Spark.

        Raises:
            Py4JError, OSError: Spark may be gone already.

        """
        ...

    def job_counts(self) -> CountedJobs | None:
        """Jobs and tasks by query id, in one Py4J command; None where nothing counts them.

        Raises:
            Py4JError: Spark refuses to answer.

        """
        ...


# -- event path -------------------------------------------------------------------------------
# The interface of one event path, a way in which Spark's events reach us.


class NotListeningError(RuntimeError):
    """Spark accepted our listener but does not list it."""


class EventPath(EventChannel, Protocol):
    """One event path; the attaching thread calls ``listen``, the probe's thread the rest."""

    name: str
    shows_shutdown: bool
    """Whether ``terminated`` becomes true when a signal ends the JVM."""
    java_listener: Any
    """The object for PySpark's ``addListener``."""

    @property
    def source(self) -> EventSource:
        """Where the reader takes the events from."""
        ...

    @property
    def ownership(self) -> Ownership:
        """Which queries this process alerts for."""
        ...

    @property
    def terminated(self) -> bool:
        """Whether the JVM reported that a signal ends it; False where it cannot report it."""
        ...

    def listen(self, *, by_hand: bool) -> None:
        """Start; ``by_hand`` where PySpark adds ``java_listener`` itself.

        Raises:
            Py4JError: Spark refuses the listener.
            NotListeningError: Spark does not list the listener just added.

        """
        ...


# -- session listeners ------------------------------------------------------------------------
# Keeps a listener registered in every session with active queries, if the bus refuses ours.
#
# Each session has its own listener bus, and Spark permanently removes a listener when a query is
# stopped while its ``onQueryStarted`` runs (``ListenerBus.removeListenerOnError``).


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


# -- bus path ---------------------------------------------------------------------------------
# The preferred event path: a queue of our own on Spark's listener bus.


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


# -- session paths ----------------------------------------------------------------------------
# The event paths through each session's listener bus: our Java class, or Py4J's proxy.


_SHARED_QUEUE_DROPS = "queue.streams.numDroppedEvents"


class _InSessions:
    """The common part of both paths: a listener in each session that has queries."""

    shows_shutdown = False
    _sessions: SessionListeners

    def check(self, now: float) -> ListenerHealth:
        """Register the listener again where Spark dropped it."""
        return self._sessions.check(now)

    def cover(self, execution: Any) -> None:
        """Listen in the session of a newly found run."""
        self._sessions.cover(execution)


class SessionPath(_InSessions):
    """The JVM listener in each session that has queries; its source is the queue in the JVM."""

    name = "session_listeners"

    def __init__(self, queue: EventQueue, spark: Any, listener: HealthListener) -> None:
        self.source = queue
        self.java_listener = queue.java.sessionListener()
        self._session = str(spark._jsparkSession.sessionUUID())  # noqa: SLF001 - no public way
        self._sessions = _session_listeners(self.java_listener, spark, listener)

    @property
    def ownership(self) -> Ownership:
        """Which queries this process alerts for."""
        return self.source.ownership

    @property
    def terminated(self) -> bool:
        """Whether the JVM reported that a signal ends it."""
        return self.source.terminated

    def listen(self, *, by_hand: bool) -> None:
        """Start in the first session, unless PySpark is about to add the listener there."""
        self.source.claim(self._session)
        self.source.java.listenInSessions()
        _add(self._sessions, by_hand=by_hand)

    def check(self, now: float) -> ListenerHealth:
        """Register the listener again where Spark dropped it; reopen a queue that has closed."""
        if self.source.java.isClosed():
            self.source.java.listenInSessions()
        return super().check(now)

    def job_counts(self) -> CountedJobs | None:
        """None: a session's bus carries no job events."""
        return None

    def release(self) -> None:
        """Leave every session we hold."""
        self.java_listener = None
        try:
            self._sessions.remove()
        finally:
            self.source.close()


class ProxyPath(_InSessions):
    """A Python listener behind Py4J's proxy, in each session that has queries."""

    ownership = ALONE
    terminated = False

    def __init__(self, spark: Any, listener: HealthListener) -> None:
        self.source = listener.mailbox
        self.name, self.java_listener = listener.proxy()
        self._gateway = spark.sparkContext._gateway  # noqa: SLF001 - as PySpark's addListener does
        self._sessions = _session_listeners(self.java_listener, spark, listener)

    def listen(self, *, by_hand: bool) -> None:
        """Start; also starts Py4J's callback server, as PySpark's ``addListener`` does."""
        if not by_hand:
            from pyspark import java_gateway

            ensure_started: Any = java_gateway.ensure_callback_server_started
            ensure_started(self._gateway)
        _add(self._sessions, by_hand=by_hand)

    def job_counts(self) -> CountedJobs | None:
        """None: each task event would cost a call into Python."""
        return None

    def release(self) -> None:
        """Leave every session we hold."""
        self._sessions.remove()
        self.java_listener = None


def _session_listeners(java: Any, spark: Any, listener: HealthListener) -> SessionListeners:
    context = spark._jsc  # noqa: SLF001 - no public way to the counter
    return SessionListeners(
        java,
        spark._jsparkSession.streams(),  # noqa: SLF001 - as PySpark's addListener does
        wirings=lambda: listener.wirings,
        dropped_events=lambda: _shared_queue_drops(context),
    )


def _add(sessions: SessionListeners, *, by_hand: bool) -> None:
    if not by_hand and not sessions.add():
        raise NotListeningError("Spark's session does not list the listener just added")


def _shared_queue_drops(java_context: Any) -> int | None:
    """Events that Spark's queue for streaming listeners has dropped since its start, if known."""
    try:
        registry = java_context.sc().listenerBus().metrics().metricRegistry()
        return int(registry.counter(_SHARED_QUEUE_DROPS).getCount())
    except NETWORK_ERRORS:
        raise
    except Py4JError:
        return None


# -- event paths ------------------------------------------------------------------------------


T = TypeVar("T")


def open_path(spark: Any, listener: HealthListener, *, by_hand: bool) -> EventPath:
    """Listen on the best path that this driver allows.

    Raises:
        Py4JError: the driver allows no path, or the JVM does not answer.
        NotListeningError: Spark does not list the listener just added.

    """
    queue = _unless_refused("a class of ours", lambda: EventQueue(spark))
    if queue is not None:
        for path in (BusPath, SessionPath):
            listen = partial(_listening, path, queue, spark, listener, by_hand=by_hand)
            listening = _unless_refused(path.name, listen)
            if listening is not None:
                return listening
        _unless_refused("an end", queue.close)
    proxy = ProxyPath(spark, listener)
    proxy.listen(by_hand=by_hand)
    return proxy


def _listening(
    path: type[BusPath | SessionPath],
    queue: EventQueue,
    spark: Any,
    listener: HealthListener,
    *,
    by_hand: bool,
) -> EventPath:
    opened = path(queue, spark, listener)
    opened.listen(by_hand=by_hand)
    return opened


def _unless_refused(what: str, action: Callable[[], T]) -> T | None:
    """What ``action`` returns; None where this driver refuses it. A lost JVM still raises."""
    try:
        return action()
    except NETWORK_ERRORS:
        raise
    except (*THROWN, OSError, ValueError, NotListeningError) as error:
        log.warning("querypulse: this driver refuses %s: %s", what, reason_of(error))
        return None
