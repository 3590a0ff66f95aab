"""One start of a query, timed by three clocks: around listeners, in the JVM, and in Python."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from ..common.java_class import compiled, instance
from ..common.session import await_quiet_bus

_SOURCE = Path(__file__).with_name("StartClock.java")


class Start(NamedTuple):
    """Milliseconds of one ``start()``.

    ``listeners`` is the part of it that Spark spends on them. ``jvm`` is all of it, on Spark's
    side. ``python`` is when the caller goes on: the way there and back, and its turn at the
    interpreter's lock, come on top.
    """

    listeners: float
    jvm: float
    python: float


class StartClock:
    """Starts queries that have nothing to do yet, and stops them again."""

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext
        bus = context._jsc.sc().listenerBus()
        made = compiled(context._jvm, _SOURCE)
        self._java = instance(context._gateway, made, context._jsc.sc().conf(), bus)
        self._streams = spark._jsparkSession.streams()
        self._spark = spark
        (of_session,) = (one for one in bus.listeners() if _is_streaming(one))
        self._java.standBefore(of_session)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within the block, the clock is the last of all listeners."""
        self._streams.addListener(self._java.last())
        yield
        self._streams.removeListener(self._java.last())

    def start(self) -> Start:
        """One query, from start to stop; returns when all listeners have seen it."""
        # Its first rows come a second later: no batch competes with the caller.
        rate = self._spark.readStream.format("rate").load()
        writer = rate.writeStream.format("noop").queryName("started")
        began = time.perf_counter()
        query = self._java.start(writer._jwrite)
        python = (time.perf_counter() - began) * 1e3
        jvm, listeners = int(self._java.nanos()) / 1e6, int(self._java.listenerNanos()) / 1e6
        query.stop()
        await_quiet_bus(self._spark)
        return Start(listeners, jvm, python)


def _is_streaming(listener: Any) -> bool:
    return str(listener.getClass().getName()).endswith(".StreamingQueryListenerBus")
