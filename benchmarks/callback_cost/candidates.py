"""Who is compared: PySpark's own listener, querypulse's, and a proxy that does nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.listener import StreamingQueryListener

from querypulse.listener import HealthListener
from querypulse.listener.guard import Guard
from querypulse.listener.loop import Loop
from querypulse.listener.mailbox import Mailbox
from querypulse.listener.probing import Context
from querypulse.listener.reader import EventReader
from querypulse.sidecar.parts import MAILBOX_CAPACITY
from querypulse.sidecar.worker import TICK_SECONDS

STOCK = "stock"
OURS = "querypulse"
NOTHING = "nothing"

MEANING = {
    STOCK: "a pyspark StreamingQueryListener with empty methods",
    OURS: "querypulse's HealthListener, its reader thread at work",
    NOTHING: "a Py4J proxy with empty methods",
}
NAMES = tuple(MEANING)


class StockListener(StreamingQueryListener):
    """PySpark's documented way, doing nothing."""

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...


class NothingProxy:
    """The least that Python code called by the JVM can do."""

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


class NothingListener:
    """What ``addListener`` needs of a listener, around the empty proxy."""

    @cached_property
    def _jlistener(self) -> Any:
        jvm: Any = SparkContext._jvm
        streaming = jvm.org.apache.spark.sql.streaming
        return streaming.PythonStreamingQueryListenerWrapper(NothingProxy())


@contextmanager
def all_candidates() -> Iterator[dict[str, Any]]:
    """Each candidate's listener by name; ours is being read until the end."""
    guard = Guard()
    heard: Mailbox[Any] = Mailbox(MAILBOX_CAPACITY)
    arrived: Mailbox[Any] = Mailbox(MAILBOX_CAPACITY)
    listener = HealthListener(heard, guard, lambda: None)
    reader = EventReader(
        heard, arrived, guard, context=lambda: Context.RUNNING, on_started=lambda: None
    )
    loops = [
        Loop("reader", reader.step, guard),
        Loop("worker", lambda: arrived.take(TICK_SECONDS), guard),
    ]
    for loop in loops:
        loop.start()
    try:
        yield {
            STOCK: StockListener(),
            OURS: listener,
            NOTHING: NothingListener(),
        }
    finally:
        for loop in loops:
            loop.stop()
    lost = (guard.errors, heard.dropped, reader.dropped)
    if listener.path != "raw" or any(lost):
        raise RuntimeError(f"not our normal way: {listener.path}, lost {lost}")
