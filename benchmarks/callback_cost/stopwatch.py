"""The clock: a JVM listener that stands in for a candidate and times it where it hurts.

What counts is how long Spark's own thread is held. Only the JVM sees that: a clock in
Python would add its own way there and back, and wait for the interpreter's lock behind
threads that the candidate woke but does not wait for.
"""

from functools import cached_property
from pathlib import Path
from typing import Any

from ..common.java_class import compiled

SETTLE_MILLISECONDS = 10
_SOURCE = Path(__file__).with_name("Stopwatch.java")


class Stopwatches:
    """Makes stopwatches; compiles their class once."""

    def __init__(self, gateway: Any) -> None:
        jvm = gateway.jvm
        self._constructor = compiled(jvm, _SOURCE).getConstructors()[0]
        self._arguments = gateway.new_array(jvm.Object, 2)

    def around(self, jlistener: Any) -> Any:
        """A JVM listener that times another one."""
        self._arguments[0] = jlistener
        self._arguments[1] = SETTLE_MILLISECONDS
        return self._constructor.newInstance(self._arguments)


class Timed:
    """A listener for ``addListener``: a candidate with a stopwatch around it."""

    def __init__(self, candidate: Any, stopwatches: Stopwatches) -> None:
        self._candidate = candidate
        self._stopwatches = stopwatches

    @cached_property
    def _jlistener(self) -> Any:
        # Late, as in PySpark itself: addListener first starts the callback server.
        return self._stopwatches.around(self._candidate._jlistener)

    def timings(self) -> dict[str, int]:
        """Nanoseconds of each progress event so far."""
        rows = (line.split(" ") for line in self._jlistener.read().splitlines())
        return {event: int(nanos) for event, nanos in rows}
