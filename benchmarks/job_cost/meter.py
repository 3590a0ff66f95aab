"""CPU seconds of the driver: this process and its JVM, threads that have ended included."""

import time
from typing import NamedTuple

from pyspark.sql import SparkSession

_SCHEDULED = 2
"""Linux: the clock of a process's time on CPU, clock_getcpuclockid(3)."""


class Cpu(NamedTuple):
    """CPU seconds of both."""

    python: float
    jvm: float

    @property
    def both(self) -> float:
        """The driver's."""
        return self.python + self.jvm

    def since(self, before: "Cpu") -> "Cpu":
        """What was used in between."""
        return Cpu(self.python - before.python, self.jvm - before.jvm)


class Meter:
    """Reads both clocks, to the nanosecond and without asking the JVM."""

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark.sparkContext._jvm
        self._clock = (~jvm.java.lang.ProcessHandle.current().pid() << 3) | _SCHEDULED

    def read(self) -> Cpu:
        """CPU seconds so far."""
        return Cpu(time.process_time(), time.clock_gettime(self._clock))
