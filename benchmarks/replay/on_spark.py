"""``querypulse replay --spark`` on one core and on two: the same job, in sessions that stay open.

``python -m benchmarks.replay.on_spark CORES`` is one of them: it says when its Spark is there, and
then answers each folder of logs on its standard input with the seconds that the job took.
"""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from querypulse.alerting.policy import Policy
from querypulse.replay.fleet import replay_fleet
from querypulse.replay.log_files import find_applications

ROOT = Path(__file__).resolve().parents[2]
READY = "ready"


class Cores:
    """A Spark with so many cores, in a process of its own."""

    def __init__(self, cores: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.replay.on_spark", str(cores)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def await_ready(self) -> None:
        """Until its Spark has started."""
        if self._line() != READY:
            raise RuntimeError("Spark did not start")

    def seconds(self, folder: Path, events: int) -> float:
        """How long it takes to replay the logs in ``folder``, which hold so many events."""
        assert self._process.stdin is not None
        print(folder, file=self._process.stdin, flush=True)
        seconds, _, summary = self._line().partition(" ")
        if f" {events:,} events" not in summary:
            raise RuntimeError(f"not all was replayed: {summary or 'Spark ended'}")
        return float(seconds)

    def close(self) -> None:
        """End it; without its standard input it has nothing to wait for."""
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextlib.contextmanager
def sparks(*cores: int) -> Iterator[list[Cores]]:
    """One Spark for each number of cores, started side by side and ready."""
    started = [Cores(count) for count in cores]
    try:
        for one in started:
            one.await_ready()
        yield started
    finally:
        for one in started:
            one.close()


def main() -> None:
    """Serve until standard input ends."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Else Spark's own threads would work on the core that its one task leaves free.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])
    spark = (
        SparkSession.builder.master(f"local[{sys.argv[1]}]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    print(READY, flush=True)
    for line in sys.stdin:
        print(*_timed(Path(line.strip())), flush=True)
    spark.stop()


def _timed(folder: Path) -> tuple[float, str]:
    """Seconds, and the job's own summary."""
    applications = find_applications([str(folder)])
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(said):
        began = time.perf_counter()
        code = replay_fleet(applications, Policy(), None, f"{out}/found.parquet")
        seconds = time.perf_counter() - began
    return seconds, said.getvalue().splitlines()[-2] if code == 0 else "failed"


if __name__ == "__main__":
    main()
