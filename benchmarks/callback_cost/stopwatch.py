"""The clocks: JVM listeners that wrap a candidate and time it on Spark's own thread.

Only the JVM can measure how long a thread of Spark is blocked: a clock in Python would add the
time of its own call, and wait for the interpreter's lock behind threads that the candidate woke
but does not wait for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ..common.java_class import compiled, instance

SETTLE_MILLISECONDS = 10
OWN_QUEUE = "querypulse"
"""As in ``EventQueue.java``."""
_HERE = Path(__file__).parent

Timings = dict[str, int]
"""Nanoseconds of each progress event."""


class Stopwatches:
    """Makes stopwatches; compiles their classes once."""

    def __init__(self, spark: SparkSession) -> None:
        gateway: Any = spark.sparkContext._gateway
        jvm = gateway.jvm
        self._gateway = gateway
        self._shared = compiled(jvm, _HERE / "Stopwatch.java")
        self._own = compiled(jvm, _HERE / "BusStopwatch.java")

    def around(self, jlistener: Any) -> Any:
        """A streaming listener that times another one."""
        return instance(self._gateway, self._shared, jlistener, SETTLE_MILLISECONDS)

    def around_bus_listener(self, jlistener: Any) -> Any:
        """A listener of the bus that times another one."""
        return instance(self._gateway, self._own, jlistener)


class Timed:
    """A listener for ``addListener``: a candidate with a stopwatch around it."""

    def __init__(self, candidate: Any, stopwatches: Stopwatches) -> None:
        self._candidate = candidate
        self._stopwatches = stopwatches

    @cached_property
    def _jlistener(self) -> Any:
        # Late, as in PySpark itself: addListener first starts the callback server.
        return self._stopwatches.around(self._candidate._jlistener)

    def timings(self) -> Timings:
        """Nanoseconds of each progress event so far."""
        return _timings(self._jlistener)


class OwnQueue:
    """querypulse's listener for its own queue of the bus; on it only where it is put there."""

    def __init__(self, bus: Any, java: Any, stopwatches: Stopwatches) -> None:
        self._bus = bus
        known = list(bus.listeners())
        java.listenOnBus(bus)
        (self.listener,) = (one for one in bus.listeners() if one not in known)
        bus.removeListener(self.listener)
        self._stopwatches = stopwatches
        self._stopwatch: Any = None

    @contextmanager
    def fed(self, listener: Any) -> Iterator[None]:
        """Within the block, a queue of the bus feeds ``listener``."""
        self._bus.addToQueue(listener, OWN_QUEUE)
        yield
        self._bus.removeListener(listener)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Within the block, the queue feeds ours, with a new stopwatch around it."""
        self._stopwatch = self._stopwatches.around_bus_listener(self.listener)
        with self.fed(self._stopwatch):
            yield

    def timings(self) -> Timings:
        """Nanoseconds of each progress event so far."""
        return _timings(self._stopwatch)

    def last_event(self) -> Any:
        """The newest progress event, in the JVM."""
        return self._stopwatch.last()


def _timings(stopwatch: Any) -> Timings:
    rows = (line.split(" ") for line in stopwatch.read().splitlines())
    return {event: int(nanos) for event, nanos in rows}
