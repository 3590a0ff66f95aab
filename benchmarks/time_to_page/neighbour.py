"""A slow listener on the bus whose work delays the events of all others."""

import threading
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

WORK_SECONDS = 0.3


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
