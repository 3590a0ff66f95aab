"""A Spark driver in its own process: a script that the test may freeze, kill or outlive."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from support.patience import PATIENCE_SECONDS, until
from support.queries import SPARK_PATIENCE_SECONDS

HEADER = """
import faulthandler, os, signal, sys, time, threading
faulthandler.register(signal.SIGUSR1)
from pyspark.sql import SparkSession
from querypulse.sidecar import attach
spark = (
    SparkSession.builder.master("local[2]").appName("driver")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "1").getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
def rate():
    return spark.readStream.format("rate").option("rowsPerSecond", 20).load()
def start(name, function=lambda batch, batch_id: None, every=200):
    # Its batches start no job: jobs would take a third of the driver's CPU time.
    stream = rate().writeStream.queryName(name).trigger(processingTime=f"{every} milliseconds")
    return stream.foreachBatch(function).start()
def until(condition):
    while not condition():
        time.sleep(0.05)
def until_commits(sidecar, *names):
    until(lambda: all(any(q.name == n and q.last_commit_batch is not None for q in sidecar.snapshot().queries) for n in names))
def say(text):
    print(text, flush=True)
"""


START_SECONDS = SPARK_PATIENCE_SECONDS
"""For what includes the start of a JVM and of its first queries."""
STACKS_SECONDS = 2.0
"""How long a process may take to print its stacks, when a test has failed."""

SHARES_THE_QUEUE = """
from py4j.protocol import Py4JError
from querypulse.listener.spark.event_paths import EventQueue
def refused(*_, **__):
    raise Py4JError("not allowed")
EventQueue.listen = refused
"""
"""Before ``attach``: the bus rejects our queue, so events arrive through session listeners."""


class Driver:
    """Runs ``script`` after ``header``; ``lines`` is its output so far."""

    def __init__(
        self,
        script: str,
        folder: Path,
        *,
        header: str = HEADER,
        name: str = "driver.py",
        cwd: Path | None = None,
        command: tuple[str, ...] = (sys.executable, "-Iu"),
        arguments: Sequence[object] = (),
        **environment: str,
    ) -> None:
        path = folder / name
        path.write_text(header + textwrap.dedent(script))
        self._output = folder / "said"
        self._errors = folder / "errors"
        with self._output.open("w") as output, self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*command, str(path), *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=cwd,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    @property
    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def wait_for_line(self, text: str, timeout: float = START_SECONDS) -> None:
        """Wait until it has printed exactly that line."""
        self._wait_for(lambda line: line == text, text, timeout)

    def line(self, start: str) -> str:
        """Its first line that starts so, once it is printed."""
        return self._wait_for(lambda line: line.startswith(start), f"{start}...", START_SECONDS)

    def _wait_for(self, is_it: Callable[[str], bool], what: str, timeout: float) -> str:
        def said() -> list[str]:
            # Asked first: what it prints before it ends is there when it has ended.
            ended = self.process.poll() is not None
            lines = list(filter(is_it, self.lines))
            assert lines or not ended, f"it ended without {what!r}\n{self.errors}"
            return lines

        try:
            return until(said, f"the driver prints {what!r}", timeout)[0]
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self._stacks()}") from None

    def _stacks(self) -> str:
        """What a driver with ``HEADER`` prints, with the stacks of all threads of Python and the JVM."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR1)
            self.signal_jvm(signal.SIGQUIT)
            time.sleep(STACKS_SECONDS)
        return "\n".join([*self.lines, self.errors])

    def wait(self, timeout: float = START_SECONDS) -> int:
        return self.process.wait(timeout)

    def signal_all(self, number: signal.Signals) -> None:
        """Signal Python and its JVM."""
        os.killpg(self.process.pid, number)

    def signal_jvm(self, number: signal.Signals) -> None:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        for child in children.split():
            os.kill(int(child), number)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.signal_all(signal.SIGKILL)
        self.process.wait(PATIENCE_SECONDS)
