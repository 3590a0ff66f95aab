"""What a job waits for once: import and attach.

``python -m benchmarks.attach``. Each import in a fresh interpreter; each ``attach()`` in one
running Spark whose session is complete (it has made a stream and asked for ``spark.streams``,
which takes PySpark itself half a second), with exporter, probe and one receiver, closed again
each time. The first of a process pays for what is loaded late: in the JVM that is Janino, which
compiles the Java class that receives the events, and which a job without queries has not used yet.
"""

import subprocess
import sys
from statistics import median

from .harness import Row, at_most, report

IMPORTS = 7
PROCESSES = 2
ATTACHMENTS = 5
OWN_MILLISECONDS = 50
IMPORT = """
import time
import pyspark.sql.streaming
began = time.perf_counter()
import querypulse.sidecar
print(time.perf_counter() - began)
"""
ATTACH = """
import time
from pyspark.sql import SparkSession
from querypulse.listener.spark import event_paths
from querypulse.sidecar import attach

compile_in_driver, compiled = event_paths.compile_in_driver, []


def compiling(*arguments):
    began = time.perf_counter()
    try:
        return compile_in_driver(*arguments)
    finally:
        compiled.append(time.perf_counter() - began)


event_paths.compile_in_driver = compiling
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
spark.readStream.format("rate").load()
spark.streams.active
for _ in range({rounds}):
    began = time.perf_counter()
    sidecar = attach(spark, http_port=0, webhook_url="http://127.0.0.1:9/")
    print(time.perf_counter() - began, compiled[-1])
    sidecar.close()
spark.stop()
"""


def main() -> int:
    """Measure, print, write."""
    imports = [seconds for _ in range(IMPORTS) for (seconds,) in _run(IMPORT)]
    runs = [_run(ATTACH.format(rounds=ATTACHMENTS)) for _ in range(PROCESSES)]
    rows = [
        at_most("import querypulse.sidecar, PySpark there", median(imports) * 1e3, 150, " ms"),
        *_attached("the first of a process", [first for first, *_ in runs], 1_000),
        *_attached("later ones", [times for _, *later in runs for times in later], 200),
    ]
    report("attach", __doc__, rows, {"import": imports, "attach": runs})
    return 0


def _attached(which: str, times: list[list[float]], limit: float) -> list[Row]:
    whole = median(seconds for seconds, _ in times) * 1e3
    own = median(seconds - compiling for seconds, compiling in times) * 1e3
    return [
        at_most(f"attach(), {which}", whole, limit, " ms"),
        at_most(f"attach(), {which}: without Janino", own, OWN_MILLISECONDS, " ms"),
    ]


def _run(script: str) -> list[list[float]]:
    """What a script prints: numbers, line by line."""
    done = subprocess.run(
        [sys.executable, "-Ic", script], check=True, capture_output=True, text=True
    )
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


if __name__ == "__main__":
    sys.exit(main())
