"""The entry point: a ``StreamingQueryListener`` for ``spark.streams.addListener``.

Normally events reach us inside the JVM (``event_paths``), and the listener added here only
claims sessions for this process. Where the driver refuses that, Spark's threads call this
listener through Py4J's proxy; it queues the event's handle and returns, and another thread reads
the handle's JSON.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql.streaming.listener import StreamingQueryListener

from ..events import EventKind
from ..mailbox import Mailbox, Received

log = logging.getLogger("querypulse")

ONE_SESSION = (
    "a sidecar watches one Spark Connect session: this listener was added to another one before, "
    "and that stays the watched one; give each session a sidecar of its own"
)
_PACKAGE = "org.apache.spark.sql.streaming."
WRAPPER = _PACKAGE + "PythonStreamingQueryListenerWrapper"
_INTERFACE = _PACKAGE + "PythonStreamingQueryListener"


class HealthListener(StreamingQueryListener):
    """Give it to ``addListener`` of any number of sessions.

    ``start`` starts monitoring if it is not running, and returns the JVM listener that PySpark
    adds; it raises errors that the user must see. ``remove`` returns the one that PySpark removes.
    ``start_on`` starts for the Spark Connect session that it is given.
    """

    def __init__(
        self,
        *,
        capacity: int,
        start: Callable[[], Any],
        start_on: Callable[[Any], object],
        remove: Callable[[], Any] | None = None,
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
        self._start = start
        self._remove = remove or start
        self._start_on = start_on

    def proxy(self) -> Any:
        """A JVM listener that calls Python.

        Raises:
            Py4JError: this driver does not allow it.

        """
        from pyspark import SparkContext

        wrapper_class = getattr(SparkContext._jvm, WRAPPER)  # noqa: SLF001 - no public way
        return wrapper_class(_RawProxy(self))

    def submit(self, kind: EventKind, payload: Any) -> None:
        """Queue one event. Runs on Spark's thread: no lock, no wait, no Py4J command."""
        # Py4J's callback port asks for no token: any local process can send a text here.
        if not isinstance(payload, JavaObject):
            self.refused["forged"] += 1
            return
        if self.closed:
            return
        at = time.monotonic()
        self.mailbox.put(Received(kind, payload, at), lifecycle=kind.is_lifecycle)
        self.callback_durations.append(time.monotonic() - at)

    def onQueryStarted(self, event: object) -> None:  # noqa: N802 - Spark's name
        """Nothing: PySpark's own way converts each event with hundreds of Py4J commands."""

    onQueryProgress = onQueryIdle = onQueryTerminated = onQueryStarted  # noqa: N815

    @property
    def _jlistener(self) -> Any:
        """The object PySpark passes to the JVM; always the same one, so that it can be removed."""
        # PySpark reads this attribute in addListener and removeListener, and calls nothing else:
        # only its own frame says which of the two it is.
        self.wirings += 1
        is_removed = sys._getframe(1).f_code.co_name == "removeListener"  # noqa: SLF001
        return self._remove() if is_removed else self._start()

    def _set_spark_session(self, session: Any) -> None:
        """Start; Spark Connect's ``addListener`` calls this, and reads no ``_jlistener``."""
        super()._set_spark_session(session)
        if self.spark is not session:
            log.warning("querypulse: %s", ONE_SESSION)
        self._start_on(self.spark)


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
        """Py4J's declaration of the Java interface that a Python object implements."""

        implements = (_INTERFACE,)
