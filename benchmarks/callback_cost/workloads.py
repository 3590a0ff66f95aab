"""The job: one Spark in local mode, and the queries whose events are timed.

``rate-micro-batch`` has new rows for every trigger (``rate`` only once a second) and moves
event time on by a second each, so windows close and the watermark advances.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window
from pyspark.sql.streaming.query import StreamingQuery

# Longer than stock PySpark's conversion of one event, or the listener queue only grows.
TRIGGER = "150 milliseconds"


def session() -> SparkSession:
    """A quiet local Spark on two cores."""
    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName("querypulse callback cost")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.streaming.forceDeleteTempCheckpointLocation", "true")
        .getOrCreate()
    )
    # A query stopped in the middle of a batch logs an error.
    spark.sparkContext.setLogLevel("OFF")
    return spark


def stateless(spark: SparkSession) -> StreamingQuery:
    """Rows in, rows out."""
    return _start(_rows(spark), "stateless")


def stateful(spark: SparkSession) -> StreamingQuery:
    """A watermark and counts per window: events with a state operator in them."""
    late = _rows(spark).withWatermark("timestamp", "5 seconds")
    return _start(late.groupBy(window("timestamp", "2 seconds")).count(), "stateful")


WORKLOADS: dict[str, Callable[[SparkSession], StreamingQuery]] = {
    "stateless": stateless,
    "stateful": stateful,
}


def _rows(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()


def _start(frame: DataFrame, name: str) -> StreamingQuery:
    writer = frame.writeStream.format("noop").queryName(name).trigger(processingTime=TRIGGER)
    return writer.start()
