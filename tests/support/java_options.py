"""Options of the drivers in tests, each of which lives for a minute on a busy machine."""

from __future__ import annotations

from importlib.metadata import version

from support.class_archive import reading_options


def driver_options() -> str:
    """The value of ``SPARK_SUBMIT_OPTS``."""
    return f"{_COMPILER} {_checkpoints()} {reading_options()}"


# C2 and a concurrent collector cost more than they gain. Without C2, the JVM reserves 48 MB for
# code; once that is full, it only interprets.
_COMPILER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"


def _checkpoints() -> str:
    """Write checkpoints without ten processes per batch.

    Spark's default manager calls Hadoop's ``FileContext``, which starts ``chmod`` and ``readlink``
    for each file on a local disk: more than half the time of a batch. Both managers write the same
    files. Sources: ``CheckpointFileManager``, ``RawLocalFileSystem``.
    """
    package = "org.apache.spark.sql.execution.streaming"
    if tuple(int(part) for part in version("pyspark").split(".")[:2]) >= (4, 1):
        package += ".checkpointing"
    manager = f"{package}.FileSystemBasedCheckpointFileManager"
    return f"-Dspark.sql.streaming.checkpointFileManagerClass={manager}"
