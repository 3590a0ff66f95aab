"""What ``start()`` of a query waits for.

``python -m benchmarks.start_cost``. Spark calls ``onQueryStarted`` of each listener before
``start()`` returns. A query is started and stopped without a listener, with querypulse by
``attach``, with querypulse by ``addListener``, and with PySpark's listener, in turns: each turn in
another order.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice, permutations
from statistics import median

from pyspark.sql import SparkSession

from querypulse.sidecar import Sidecar, attach

from .candidates import NONE, OURS, STOCK, StockListener
from .harness import Row, at_most, await_quiet_bus, difference, report, rows_of, session, spread

BY_HAND = f"{OURS} by addListener"
CANDIDATES = NONE, OURS, BY_HAND, STOCK
TURNS = 12
STARTS = 3
MOST_ADDED_MILLISECONDS = 5.0


def main() -> int:
    """Measure, print, write."""
    spark = session("start_cost")
    times: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    for name in CANDIDATES:
        _measure(spark, name)
    for order in islice(permutations(CANDIDATES), TURNS):
        for name in order:
            times[name].append(_measure(spark, name))
    spark.stop()
    report("start_cost", __doc__, list(_rows(times)), times)
    return 0


def _rows(times: dict[str, list[float]]) -> Iterator[Row]:
    for name in CANDIDATES:
        yield Row(f"start(), {name}", f"{spread(times[name])} ms")
    for name in (OURS, BY_HAND):
        added, margin = difference(times[name], times[NONE])
        question = f"{name} adds (± {margin:.1f} ms)"
        yield at_most(question, added, MOST_ADDED_MILLISECONDS, " ms")


def _measure(spark: SparkSession, name: str) -> float:
    """Milliseconds of ``start()`` with one candidate: the median of a few."""
    with _listening(spark, name):
        seconds = [_start(spark) for _ in range(STARTS)]
    await_quiet_bus(spark)
    return median(seconds) * 1e3


def _start(spark: SparkSession) -> float:
    writer = rows_of(spark).writeStream.format("noop").trigger(processingTime="1 hour")
    began = time.perf_counter()
    query = writer.start()
    took = time.perf_counter() - began
    query.stop()
    return took


@contextmanager
def _listening(spark: SparkSession, name: str) -> Iterator[None]:
    if name == NONE:
        yield
    elif name == OURS:
        sidecar = attach(spark, http_port=-1)
        yield
        sidecar.close()
    else:
        listener = StockListener() if name == STOCK else Sidecar(http_port=-1).listener
        spark.streams.addListener(listener)
        yield
        spark.streams.removeListener(listener)


if __name__ == "__main__":
    sys.exit(main())
