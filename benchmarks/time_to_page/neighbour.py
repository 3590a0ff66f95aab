"""Slow listeners on the bus, which delay the events of all others."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from ..common.java_class import compiled, instance

WORK_SECONDS = 0.3
BLOCKED_MILLISECONDS = 5000


@contextmanager
def blocked_bus(spark: SparkSession) -> Iterator[None]:
    """Within the block, each progress event holds the bus for seconds, which takes no CPU."""
    gateway: Any = spark.sparkContext._gateway
    made = compiled(gateway.jvm, Path(__file__).with_name("BlockingListener.java"))
    listener = instance(gateway, made, BLOCKED_MILLISECONDS)
    streams: Any = spark._jsparkSession.streams()
    streams.addListener(listener)
    try:
        yield
    finally:
        listener.free()
        streams.removeListener(listener)


class BusyListener(StreamingQueryListener):
    """A stock listener that works for a while on every progress event, until it is ``free``.

    Spark's end waits for every event on the bus.
    """

    def __init__(self) -> None:
        self.free = threading.Event()

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, _: Any) -> None:
        self.free.wait(WORK_SECONDS)

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...


def waiting_events(spark: SparkSession) -> int:
    """How many events wait in Spark's queue for streaming listeners."""
    java: Any = spark.sparkContext._jsc
    registry = java.sc().listenerBus().metrics().metricRegistry()
    return int(registry.getGauges().get("queue.streams.size").getValue())
