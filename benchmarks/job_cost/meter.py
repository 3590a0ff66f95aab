"""CPU seconds of the driver: this process and its JVM, threads that have ended included.

The JIT compiler's threads are left out: they compile Spark for minutes, with any listener or
none, now more and now less, and that would hide everything else.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

KEEP_COMPILERS = "-XX:-UseDynamicNumberOfCompilerThreads"
"""For the JVM: the time of a thread that has ended could not be read any more."""

_COMPILER, _PY4J, _LISTENERS = "Compile", "Thread-", "spark-listener-"
ENDED = "Python: threads of one scrape each"
_OWN_QUEUE, _SERVING = "JVM: our bus queue", "JVM: Py4J"
_SCHEDULED = 2
"""Linux: the clock of a process's time on CPU, clock_getcpuclockid(3)."""


class Cpu(NamedTuple):
    """CPU seconds of both.

    ``serving``, a part of the JVM's, is its threads that serve Python, and those of listener-bus
    queues that Spark does not have by itself: ours.
    """

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
    """Reads the kernel's own counts, to the nanosecond and without asking the JVM.

    Make one while queries run and before anybody else listens: Spark has its own threads then.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        pid = jvm.java.lang.ProcessHandle.current().pid()
        self._clock = (~pid << 3) | _SCHEDULED
        self._threads = Path(f"/proc/{pid}/task")
        # The kernel keeps 15 characters of a thread's name: those of all queues are the same.
        self._queues_of_spark = {thread for thread, name in self._named() if _LISTENERS in name}

    def read(self) -> Cpu:
        """CPU seconds so far."""
        compiling = serving = 0.0
        for thread, name in self._named():
            if _COMPILER in name:
                compiling += _seconds(thread)
            elif self._serves(thread, name):
                serving += _seconds(thread)
        jvm = time.clock_gettime(self._clock) - compiling
        return Cpu(time.process_time(), jvm, serving)

    def by_thread(self) -> dict[str, float]:
        """CPU seconds so far of Python without the calling thread, and of what serves it.

        Python threads that have ended, as one for each scrape does, are ``ENDED``.
        """
        me = threading.current_thread()
        found = {thread.name: _clock(thread) for thread in threading.enumerate() if thread != me}
        found[ENDED] = time.process_time() - time.thread_time() - sum(found.values())
        for thread, name in self._named():
            if self._serves(thread, name):
                kind = _OWN_QUEUE if _LISTENERS in name else _SERVING
                found[kind] = found.get(kind, 0.0) + _seconds(thread)
        return found

    def _serves(self, thread: Path, name: str) -> bool:
        return _PY4J in name or (_LISTENERS in name and thread not in self._queues_of_spark)

    def _named(self) -> Iterator[tuple[Path, str]]:
        for thread in self._threads.iterdir():
            # Others of the JVM's threads come and go.
            with suppress(OSError):
                yield thread, (thread / "comm").read_text()


def _clock(thread: threading.Thread) -> float:
    # It may end at any moment.
    with suppress(OSError):
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))
    return 0.0


def _seconds(thread: Path) -> float:
    with suppress(OSError):
        return int((thread / "schedstat").read_text().split()[0]) / 1e9
    return 0.0
