"""CPU seconds of the driver: this process and its JVM, threads that have ended included.

The JIT compiler's threads are left out: they compile Spark for minutes, whoever listens, now
more and now less, and that would hide everything else.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

KEEP_COMPILERS = "-XX:-UseDynamicNumberOfCompilerThreads"
"""For the JVM: the time of a thread that has ended could not be read any more."""

_COMPILER, _PY4J = "Compile", "Thread-"
_SCHEDULED = 2
"""Linux: the clock of a process's time on CPU, clock_getcpuclockid(3)."""


class Cpu(NamedTuple):
    """CPU seconds of both; ``serving``, a part of the JVM's, is its threads that serve Python."""

    python: float
    jvm: float
    serving: float

    @property
    def both(self) -> float:
        """The driver's."""
        return self.python + self.jvm

    def since(self, before: "Cpu") -> "Cpu":
        """What was used in between."""
        return Cpu(*(now - then for now, then in zip(self, before, strict=True)))


class Meter:
    """Reads the kernel's own counts, to the nanosecond and without asking the JVM."""

    def __init__(self, spark: SparkSession) -> None:
        pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
        self._clock = (~pid << 3) | _SCHEDULED
        self._threads = Path(f"/proc/{pid}/task")

    def read(self) -> Cpu:
        """CPU seconds so far."""
        compiling, serving = self._seconds(_COMPILER), self._seconds(_PY4J)
        jvm = time.clock_gettime(self._clock) - compiling
        return Cpu(time.process_time(), jvm, serving)

    def _seconds(self, name: str) -> float:
        return sum(map(_nanoseconds, self._named(name))) / 1e9

    def _named(self, name: str) -> Iterator[Path]:
        for thread in self._threads.iterdir():
            # Others of the JVM's threads come and go.
            with suppress(OSError):
                if name in (thread / "comm").read_text():
                    yield thread


def _nanoseconds(thread: Path) -> int:
    with suppress(OSError):
        return int((thread / "schedstat").read_text().split()[0])
    return 0
