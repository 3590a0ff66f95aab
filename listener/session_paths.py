"""The event paths through each session's listener bus: our Java class, or Py4J's proxy."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError

from .event_path import NotListeningError
from .event_queue import EventQueue
from .health_listener import HealthListener
from .job_counts import CountedJobs
from .jvm import NETWORK_ERRORS
from .ownership import ALONE, Ownership
from .probing import ListenerHealth
from .session_listeners import SessionListeners

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
