"""CPU seconds of the driver: this process and its JVM, threads that have ended included.

The JIT compiler's threads are left out: they compile Spark for minutes, whoever listens, now
more and now less, and that would hide everything else.
"""

import time
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

KEEP_COMPILERS = "-XX:-UseDynamicNumberOfCompilerThreads"
"""For the JVM: the time of a thread that has ended could not be read any more."""

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
    """Reads the kernel's own counts, to the nanosecond and without asking the JVM."""

    def __init__(self, spark: SparkSession) -> None:
        pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
        self._clock = (~pid << 3) | _SCHEDULED
        threads = Path(f"/proc/{pid}/task").iterdir()
        self._compilers = [thread / "schedstat" for thread in threads if _compiles(thread)]

    def read(self) -> Cpu:
        """CPU seconds so far."""
        compiling = sum(int(file.read_text().split()[0]) for file in self._compilers) / 1e9
        return Cpu(time.process_time(), time.clock_gettime(self._clock) - compiling)


def _compiles(thread: Path) -> bool:
    return "Compile" in (thread / "comm").read_text()
