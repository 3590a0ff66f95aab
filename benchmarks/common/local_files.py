"""Checkpoints on the local disk that cost what they cost elsewhere.

Without its native library, which PySpark does not bring, Hadoop starts a ``chmod`` for every
file it writes (``RawLocalFileSystem.setPermission``): nine processes and two thirds of a small
batch's CPU, which no driver with its checkpoints in a store pays.
"""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from .java_class import compiled

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
"""Spark's other one writes with ``FileContext``, which has file systems of its own."""
_SOURCE = Path(__file__).with_name("ForklessFileSystem.java")


def fork_no_processes(spark: SparkSession) -> None:
    """Give Hadoop a local file system that sets no permissions."""
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
