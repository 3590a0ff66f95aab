"""The entry point: a ``StreamingQueryListener`` for ``spark.streams.addListener``.

Normally events reach us inside the JVM (``event_paths``), and the listener added here only
claims sessions for this process. Where the driver refuses our Java classes, this listener
receives the events: Spark's threads call it through Py4J's proxy, it queues the event's handle
and returns, and another thread reads the handle's JSON.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaObject, java_import
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ...core.guard import Guard
from ..events import EventKind
from ..mailbox import Mailbox, Received

log = logging.getLogger("querypulse")

PROXY = "python_proxy"
CALLBACKS = "python_callbacks"
ONE_SESSION = (
    "a sidecar watches one Spark Connect session: this listener was added to another one before, "
    "and that stays the watched one; give each session a sidecar of its own"
)
_PACKAGE = "org.apache.spark.sql.streaming."
_WRAPPER = _PACKAGE + "PythonStreamingQueryListenerWrapper"
_INTERFACE = _PACKAGE + "PythonStreamingQueryListener"


class HealthListener(StreamingQueryListener):
    """Give it to ``addListener`` of any number of sessions.

    ``start`` starts monitoring if it is not running, and returns the JVM listener that PySpark
    adds or removes; it raises errors that the user must see. ``start_later`` does the same on
    another thread, for a PySpark that asks for no JVM listener and calls back at once.
    ``start_on`` starts for the Spark Connect session that it is given.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        capacity: int,
        start: Callable[[], Any],
        start_later: Callable[[], None],
        start_on: Callable[[Any], object],
    ) -> None:
        self.mailbox: Mailbox[Received] = Mailbox(capacity)
        """The events that Spark's threads submit where they call Python."""
        self.wirings = 0
        """How often PySpark asked for the JVM listener: to add it, or to remove it."""
        self.refused: Counter[str] = Counter()
        """Calls of the proxy that carried no JVM event, by reason."""
        self.callback_durations: deque[float] = deque(maxlen=4096)
        self.closed = False
        """Whether nobody reads submitted events any more."""
        self._guard = guard
        self._start = start
        self._start_later = start_later
        self._start_on = start_on
        self._takes_callbacks = False
        self._called = False

    def proxy(self) -> tuple[str, Any]:
        """The name of the better of two Python paths, and its JVM listener.

        Raises:
            Py4JError: this driver allows neither.

        """
        proxy = self._guard.attempt("python_proxy", self._raw_proxy)
        if proxy is not None:
            return PROXY, proxy
        self._takes_callbacks = True
        _import_streaming()
        return CALLBACKS, super()._jlistener

    def submit(self, kind: EventKind, payload: Any) -> None:
        """Queue one event. Runs on Spark's thread: no lock, no wait, no Py4J command."""
        if self.closed:
            return
        at = time.monotonic()
        self.mailbox.put(Received(kind, payload, at), lifecycle=kind.is_lifecycle)
        self.callback_durations.append(time.monotonic() - at)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """PySpark's own path: called by Spark while ``start()`` waits."""
        self._submit_text(
            EventKind.STARTED,
            lambda: {
                "id": str(event.id),
                "runId": str(event.runId),
                "name": event.name,
                "timestamp": event.timestamp,
            },
        )

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """PySpark's own path: called by Spark after each batch."""
        self._submit_text(EventKind.PROGRESS, lambda: {"progress": json.loads(event.progress.json)})

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """PySpark's own path: called by Spark when a query finds nothing to do."""
        self._submit_text(
            EventKind.IDLE,
            lambda: {"id": str(event.id), "runId": str(event.runId), "timestamp": event.timestamp},
        )

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """PySpark's own path: called by Spark after a query has ended."""
        self._submit_text(
            EventKind.TERMINATED,
            lambda: {
                "id": str(event.id),
                "runId": str(event.runId),
                "exception": event.exception,
                "errorClassOnException": event.errorClassOnException,
            },
        )

    @property
    def _jlistener(self) -> Any:
        """The object PySpark passes to the JVM; always the same one, so that it can be removed."""
        # PySpark reads this attribute in addListener and removeListener, and calls nothing else.
        self.wirings += 1
        return self._start()

    def _set_spark_session(self, session: Any) -> None:
        """Start; Spark Connect's ``addListener`` calls this, and reads no ``_jlistener``."""
        super()._set_spark_session(session)
        if self.spark is not session:
            log.warning("querypulse: %s", ONE_SESSION)
        self._start_on(self.spark)

    def _raw_proxy(self) -> Any:
        from pyspark import SparkContext

        wrapper_class = getattr(SparkContext._jvm, _WRAPPER)  # noqa: SLF001 - no public way
        return wrapper_class(_RawProxy(self))

    def _submit_text(self, kind: EventKind, fields: Callable[[], object]) -> None:
        if self._takes_callbacks:
            self._guard.attempt(CALLBACKS, lambda: self.submit(kind, json.dumps(fields())))
        elif not self._called:
            self._called = True
            self._start_later()


def _import_streaming() -> None:
    """Do what PySpark's ``addListener`` does before it asks for the listener."""
    from pyspark import SparkContext

    java_import(SparkContext._jvm, _PACKAGE + "*")  # noqa: SLF001 - no public way


class _RawProxy:
    """Implements Spark's ``PythonStreamingQueryListener`` without touching the events."""

    def __init__(self, listener: HealthListener) -> None:
        self._listener = listener

    def onQueryStarted(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
        self._submit(EventKind.STARTED, jevent)

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
        self._submit(EventKind.PROGRESS, jevent)

    def onQueryIdle(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
        self._submit(EventKind.IDLE, jevent)

    def onQueryTerminated(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
        self._submit(EventKind.TERMINATED, jevent)

    def _submit(self, kind: EventKind, jevent: Any) -> None:
        # Py4J's callback port asks for no token: any local process can send a text here.
        if isinstance(jevent, JavaObject):
            self._listener.submit(kind, jevent)
        else:
            self._listener.refused["forged"] += 1

    class Java:
        """Py4J's declaration of the Java interface that a Python object implements."""

        implements = (_INTERFACE,)
