"""The first witness: a ``StreamingQueryListener`` that only appends.

Stock PySpark turns every event into Python objects on Spark's own thread, hundreds of
Py4J commands each. ``HealthListener`` hands Spark its own JVM proxy instead (PySpark's
private ``_jlistener``), keeps the event's handle and returns; another thread asks the
handle for its JSON. Where that is not to be had, PySpark's own path serves.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from .events import EventKind
from .guard import Guard
from .mailbox import Mailbox

_WRAPPER = "org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper"
_INTERFACE = "org.apache.spark.sql.streaming.PythonStreamingQueryListener"


class Heard(NamedTuple):
    """One event as it arrived: a JVM handle with ``json()``, or JSON text already."""

    kind: EventKind
    payload: Any
    at: float


class HealthListener(StreamingQueryListener):
    """Hears every query of the sessions it is added to; give it to ``addListener``."""

    def __init__(self, mailbox: Mailbox[Any], guard: Guard, on_wired: Callable[[], None]) -> None:
        self.path = "not wired"
        """How events reach us: ``raw`` (handles), ``stock`` (PySpark's objects)."""
        self.wirings = 0
        """How often PySpark asked for the JVM listener: to add it, or to remove it."""
        self.wrapper: Any = None
        """The JVM listener, None before the first wiring and on Spark Connect."""
        self.callback_seconds: deque[float] = deque(maxlen=4096)
        self._mailbox = mailbox
        self._guard = guard
        self._on_wired = on_wired

    def submit(self, kind: EventKind, payload: Any) -> None:
        """Hand over one event. On Spark's thread: no lock, no wait, no Py4J command."""
        at = time.monotonic()
        self._mailbox.put(Heard(kind, payload, at), lifecycle=kind.is_lifecycle)
        self.callback_seconds.append(time.monotonic() - at)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Stock path: called by Spark while ``start()`` waits."""
        self._submit_text(
            EventKind.STARTED,
            lambda: {"id": str(event.id), "runId": str(event.runId), "name": event.name},
        )

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Stock path: called by Spark after each batch."""
        self._submit_text(EventKind.PROGRESS, lambda: {"progress": json.loads(event.progress.json)})

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Stock path: called by Spark when a query finds nothing to do."""
        self._submit_text(EventKind.IDLE, lambda: {"id": str(event.id), "runId": str(event.runId)})

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Stock path: called by Spark after a query has ended."""
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
        """What PySpark gives the JVM; always the same object, as removing it needs."""
        self.wirings += 1
        if self.wrapper is None and not self._guard.attempt("raw_listener", self._wire_raw):
            self.wrapper = super()._jlistener
            self.path = "stock"
        self._on_wired()
        return self.wrapper

    def _wire_raw(self) -> None:
        from pyspark import SparkContext

        wrapper_class = getattr(SparkContext._jvm, _WRAPPER)  # noqa: SLF001 - no public way
        self.wrapper = wrapper_class(_RawProxy(self))
        self.path = "raw"

    def _submit_text(self, kind: EventKind, fields: Any) -> None:
        if self.wrapper is None:
            self.path = "stock"
        self._guard.attempt("stock_listener", lambda: self.submit(kind, json.dumps(fields())))


class _RawProxy:
    """Implements Spark's ``PythonStreamingQueryListener`` without touching the events."""

    def __init__(self, listener: HealthListener) -> None:
        self._submit = listener.submit

    def onQueryStarted(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
        self._submit(EventKind.STARTED, jevent)

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
        self._submit(EventKind.PROGRESS, jevent)

    def onQueryIdle(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
        self._submit(EventKind.IDLE, jevent)

    def onQueryTerminated(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
        self._submit(EventKind.TERMINATED, jevent)

    class Java:
        """Py4J's way to say which Java interface a Python object implements."""

        implements = (_INTERFACE,)
