"""How long the import and ``attach()`` hold up a job that has PySpark and a SparkContext already.

``python -m benchmarks.attach_cost``. Each import in a fresh interpreter; each ``attach()`` in one
running Spark whose session is complete (it has made a stream and asked for ``spark.streams``,
which takes PySpark itself half a second), with exporter, probe and one receiver, closed again
each time. The first of a process pays for what is loaded late.
"""

import subprocess
import sys
from statistics import median

from ..common.result import at_most, lines, write

IMPORTS = 9
PROCESSES = 2
ATTACHMENTS = 5
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
from querypulse.sidecar import attach

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
    print(time.perf_counter() - began)
    sidecar.close()
spark.stop()
"""


def main() -> int:
    """Measure, print, write."""
    imports = [seconds for _ in range(IMPORTS) for seconds in _run(IMPORT)]
    runs = [_run(ATTACH.format(rounds=ATTACHMENTS)) for _ in range(PROCESSES)]
    firsts = [first for first, *_ in runs]
    others = [seconds for _, *later in runs for seconds in later]
    rows = [
        at_most("import querypulse.sidecar, PySpark there", median(imports) * 1e3, 150, " ms"),
        at_most("attach(), the first of a process", median(firsts) * 1e3, 50, " ms"),
        at_most("attach(), later ones", median(others) * 1e3, 50, " ms"),
    ]
    write("attach_cost", rows, {"import": imports, "attach": runs})
    print(*lines("What a job waits for once", rows), sep="\n")
    return 0


def _run(script: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-Ic", script], check=True, capture_output=True, text=True
    )
    return [float(line) for line in done.stdout.split()]


if __name__ == "__main__":
    sys.exit(main())
