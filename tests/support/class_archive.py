"""Options of the drivers in tests, and Spark's classes in a file that a JVM maps: a start takes half the time.

``python -m support.class_archive FILE`` runs a small driver, whose JVM writes the file as it exits.
A JVM with other jars, or of another build, ignores the file.
https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark.jsa"
WRITE_SECONDS = 300
# Java 11 and older do not know the options. A class that cannot be archived is a warning.
QUIET = "-XX:+IgnoreUnrecognizedVMOptions -Xlog:disable"


def driver_options() -> str:
    """The value of ``SPARK_SUBMIT_OPTS``."""
    archive = f"-XX:SharedArchiveFile={ARCHIVE} {QUIET}" if ARCHIVE.exists() else ""
    return f"{_COMPILER} {_checkpoints()} {archive}"


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


def write(archive: Path) -> None:
    """Write the archive, unless the JVM that is to read it cannot."""
    new = archive.with_name(f"{archive.name}.new")
    new.unlink(missing_ok=True)
    _run_driver(new)
    java = shutil.which("java") or str(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    subprocess.run(
        [java, f"-XX:SharedArchiveFile={new}", *QUIET.split(), "-version"],
        check=True,
        capture_output=True,
    )
    new.rename(archive)


def _run_driver(archive: Path) -> None:
    """Run a query in a driver whose JVM writes the archive as it exits."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    options = os.environ.get("SPARK_SUBMIT_OPTS", "")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{options} -XX:ArchiveClassesAtExit={archive} {QUIET}"
    builder = SparkSession.builder.master("local[2]").appName("class archive")
    for key in ("spark.driver.bindAddress", "spark.driver.host"):
        builder = builder.config(key, "127.0.0.1")
    spark = builder.getOrCreate()
    gateway = SparkContext._gateway
    # However far it got: a JVM that hangs must not keep its user waiting.
    deadline = threading.Timer(WRITE_SECONDS, gateway.proc.kill)
    deadline.start()
    stream = spark.readStream.format("rate").load().writeStream.format("noop")
    stream.trigger(availableNow=True).start().awaitTermination()
    spark.stop()
    gateway.shutdown()
    # PySpark's JVM exits once its input ends.
    gateway.proc.stdin.close()
    gateway.proc.wait()
    deadline.cancel()


if __name__ == "__main__":
    if shutil.which("java") or os.environ.get("JAVA_HOME"):
        write(Path(sys.argv[1]).resolve())
