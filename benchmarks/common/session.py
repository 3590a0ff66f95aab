"""One quiet Spark in local mode, and rows for queries that cost little."""

from pyspark.sql import DataFrame, SparkSession

from .local_files import fork_no_processes

QUIET_MILLISECONDS = 30_000


def session(name: str, java_options: str = "") -> SparkSession:
    """A local Spark on two cores that logs nothing and shows nothing."""
    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName(f"querypulse {name}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.streaming.forceDeleteTempCheckpointLocation", "true")
        .getOrCreate()
    )
    # A query stopped in the middle of a batch logs an error.
    spark.sparkContext.setLogLevel("OFF")
    fork_no_processes(spark)
    return spark


def await_quiet_bus(spark: SparkSession) -> None:
    """Return once Spark's listeners have received every event."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(QUIET_MILLISECONDS)


def dropped_by_spark(spark: SparkSession) -> int:
    """Events so far that did not fit into our queue of the listener bus."""
    registry = spark.sparkContext._jsc.sc().listenerBus().metrics().metricRegistry()
    return int(registry.counter("queue.querypulse.numDroppedEvents").getCount())


def rows(spark: SparkSession, rows_a_batch: int = 10, partitions: int = 1) -> DataFrame:
    """``rate-micro-batch``: new rows for every trigger (``rate`` has them only once a second).

    Event time moves on by a second each batch, so windows close and the watermark advances.
    """
    source = spark.readStream.format("rate-micro-batch").option("numPartitions", partitions)
    return source.option("rowsPerBatch", rows_a_batch).load()
