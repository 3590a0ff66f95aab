"""The job: eight queries, half of them stateful, with the same work for every trigger.

Spark starts batches at whole multiples of the trigger's interval, so all eight begin at once and
are done before the next multiple: from one gap between batches to the next, whole batches.
"""

import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, sha2, window
from pyspark.sql.functions import max as largest
from pyspark.sql.streaming.query import StreamingQuery

from ..common.session import rows

TRIGGER_SECONDS = 2
QUERIES = 8
ROWS_A_BATCH = 240_000
GAP_SECONDS = 0.15
GAPS = 3
"""So many are waited for when batches overrun; then half batches must do."""


class EightQueries:
    """Eight running queries; ``stop`` ends them."""

    def __init__(self, spark: SparkSession) -> None:
        self._queries = [_start(spark, number) for number in range(QUERIES)]

    def rows_done(self) -> int:
        """Rows of all batches completed so far."""
        return sum(_batches(query) for query in self._queries) * ROWS_A_BATCH

    def await_gap(self) -> None:
        """Sleep until just before the next trigger, when no batch runs."""
        for _ in range(GAPS):
            time.sleep((-time.time() - GAP_SECONDS) % TRIGGER_SECONDS)
            if not any(query._jsq.status().isTriggerActive() for query in self._queries):
                return

    def write_progress(self, times: int) -> None:
        """Let Spark write the JSON of each query's last progress so often."""
        while not all(map(_batches, self._queries)):
            self.await_gap()
        written = [query._jsq.lastProgress() for query in self._queries]
        for _ in range(times):
            for progress in written:
                progress.json()

    def stop(self) -> None:
        """End all queries."""
        for query in self._queries:
            query.stop()


def _start(spark: SparkSession, number: int) -> StreamingQuery:
    frame = rows(spark, ROWS_A_BATCH)
    hashed = frame.withColumn("hash", sha2(col("value").cast("string"), 256))
    query = (_counted(hashed) if number % 2 else hashed).writeStream.format("noop")
    query = query.queryName(f"query-{number}").trigger(processingTime=f"{TRIGGER_SECONDS} seconds")
    return query.start()


def _counted(frame: DataFrame) -> DataFrame:
    late = frame.withWatermark("timestamp", "5 seconds")
    groups = late.groupBy(window("timestamp", "2 seconds"), col("value") % 1000)
    return groups.agg(largest("hash"))


def _batches(query: StreamingQuery) -> int:
    progress = query._jsq.lastProgress()
    return progress.batchId() + 1 if progress is not None else 0
