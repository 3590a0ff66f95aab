"""One quiet Spark in local mode, and rows for queries that cost little."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from .java_class import compiled

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


MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
"""Spark's other one writes with ``FileContext``, which has file systems of its own."""
_SOURCE = Path(__file__).with_name("ForklessFileSystem.java")


def fork_no_processes(spark: SparkSession) -> None:
    """Give Hadoop a local file system that sets no permissions: it costs what others cost.

    Without its native library, which PySpark does not bring, Hadoop starts a ``chmod`` for every
    file it writes (``RawLocalFileSystem.setPermission``): nine processes and two thirds of a small
    batch's CPU, which no driver with its checkpoints in a store pays.
    """
    jvm: Any = spark.sparkContext._jvm
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    made = compiled(jvm, _SOURCE)
    # Hadoop keeps file systems: the one there now must go, and ours is found by all others.
    system, root = jvm.org.apache.hadoop.fs.FileSystem, jvm.java.net.URI("file:///")
    system.get(root, settings).close()
    settings.setClassLoader(made.getClassLoader())
    settings.set("fs.file.impl", made.getName())
    if system.get(root, settings).getClass().getName() != made.getName():
        raise RuntimeError("Hadoop kept its own file system")
    managers = "org.apache.spark.sql.execution.streaming.checkpointing"
    spark.conf.set(MANAGER, f"{managers}.FileSystemBasedCheckpointFileManager")
