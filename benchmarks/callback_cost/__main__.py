"""What a listener's callback costs Spark: PySpark's way, a peer's, ours, and the least possible.

``python -m benchmarks.callback_cost``. All listeners are registered in one job and called one
after another for each event, in balanced orders. What counts is how long each holds Spark's own
thread, the way from the JVM to Python and back included, timed in the JVM. Before each call a
pause, not counted, lets others' after-work end: calls start cold.
"""

import sys
from functools import partial

from pyspark.sql import SparkSession

from ..common.result import Row, lines, write
from ..common.session import session
from .candidates import MEANING, all_candidates
from .measuring import Listeners, Round, progress_rounds
from .stopwatch import Stopwatches, Timed
from .table import details, rows
from .workloads import WORKLOADS


def main() -> int:
    """Measure, print, write."""
    spark = session("callback cost")
    print(*(f"  {name:22}{meaning}" for name, meaning in MEANING.items()), sep="\n", flush=True)
    measured = _measure(spark)
    spark.stop()
    table: list[Row] = []
    for title, rounds in measured.items():
        table += rows(title, rounds, promised=title == "stateful")
    write("callback_cost", table, measured)
    print(*lines("One progress callback on Spark's thread", table), sep="\n")
    return 0


def _measure(spark: SparkSession) -> dict[str, list[Round]]:
    measured = {}
    stopwatches = Stopwatches(spark.sparkContext._gateway)
    with all_candidates() as candidates:
        listeners: Listeners = {
            name: partial(Timed, candidate, stopwatches) for name, candidate in candidates.items()
        }
        for title, workload in WORKLOADS.items():
            measured[title] = progress_rounds(spark, workload, listeners)
            print(*details(title, measured[title]), sep="\n", flush=True)
    return measured


if __name__ == "__main__":
    sys.exit(main())
