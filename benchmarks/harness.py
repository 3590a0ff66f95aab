"""What all benchmarks share: rows of the table, margins, a quiet Spark, and Java classes in it."""

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "build" / "benchmarks"
JAVA = Path(__file__).parent / "java"
WIDTHS = (54, 34, 22)
QUIET_MILLISECONDS = 30_000


class Row(NamedTuple):
    """``reached`` is None without a target."""

    question: str
    measured: str
    target: str = ""
    reached: bool | None = None


def at_most(question: str, value: float, limit: float, unit: str = "") -> Row:
    """A row whose value must not be above ``limit``."""
    return Row(question, f"{short(value)}{unit}", f"at most {limit:,g}{unit}", value <= limit)


def at_least(question: str, value: float, limit: float, unit: str = "") -> Row:
    """A row whose value must not be below ``limit``."""
    return Row(question, f"{short(value)}{unit}", f"at least {limit:,g}{unit}", value >= limit)


def short(value: float) -> str:
    """Three digits that matter: "0.283", "28.3", "28,300"."""
    if abs(value) < 1000:
        return f"{value:.3g}"
    return f"{float(f'{value:.3g}'):,.0f}"


def spread(values: Sequence[float]) -> str:
    """The median, and the range around it."""
    return f"{median(values):.3f} (from {min(values):.3f} to {max(values):.3f})"


def difference(ours: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """By how much one series is above another, and the margin of that.

    Equal indexes are pairs. In 19 of 20 cases the true difference of the medians lies within the
    margin: two standard errors of a median (1.253 times those of a mean), by the quartiles (1.349
    standard deviations apart), so that a few values far out do not count.
    """
    differences = [our - other for our, other in zip(ours, others, strict=True)]
    low, middle, high = quantiles(differences, n=4)
    return middle, 2 * 1.253 * (high - low) / 1.349 / math.sqrt(len(differences))


def report(name: str, title: str | None, rows: Sequence[Row], samples: Any) -> None:
    """Print the rows, and keep them with every sample where ``make bench`` finds them.

    ``title`` is the benchmark's docstring: its first line asks the question.
    """
    question = (title or name).splitlines()[0].rstrip(".")
    RESULTS.mkdir(parents=True, exist_ok=True)
    result = {"title": question, "rows": [row._asdict() for row in rows], "samples": samples}
    (RESULTS / f"{name}.json").write_text(json.dumps(result))
    print_rows(question, rows)


def print_rows(title: str, rows: Sequence[Row]) -> None:
    """Rows as a small table in text."""
    print(f"\n{title}")
    for row in rows:
        cells = zip((row.question, row.measured, row.target), WIDTHS, strict=True)
        outcome = {None: "", True: "met", False: "MISSED"}[row.reached]
        print(f"  {''.join(f'{text:<{width}}' for text, width in cells)}{outcome}".rstrip())


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
    _fork_no_processes(spark)
    return spark


def listener_bus(spark: SparkSession) -> Any:
    """Spark's listener bus, in the JVM."""
    return spark.sparkContext._jsc.sc().listenerBus()


def await_quiet_bus(spark: SparkSession) -> None:
    """Return once Spark's listeners have received every event."""
    listener_bus(spark).waitUntilEmpty(QUIET_MILLISECONDS)


def rows_of(spark: SparkSession, rows_a_batch: int = 10) -> DataFrame:
    """``rate-micro-batch``: new rows for every trigger (``rate`` has them only once a second).

    Event time moves on by a second each batch, so windows close and the watermark advances.
    """
    source = spark.readStream.format("rate-micro-batch").option("numPartitions", 1)
    return source.option("rowsPerBatch", rows_a_batch).load()


@cache
def compile_java(spark: SparkSession, name: str) -> Any:
    """The ``java.lang.Class`` of a file in ``java/``, compiled by Spark's own Janino.

    Once: Py4J remembers the methods of a class by its name.
    """
    jvm: Any = spark.sparkContext._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook((JAVA / f"{name}.java").read_text())
    return compiler.getClassLoader().loadClass(name)


def _fork_no_processes(spark: SparkSession) -> None:
    """Give Hadoop a local file system that sets no permissions: it costs what others cost.

    Without its native library, which PySpark does not bring, Hadoop starts a ``chmod`` for every
    file it writes (``RawLocalFileSystem.setPermission``): nine processes and two thirds of a small
    batch's CPU, which no driver with its checkpoints in a store pays.
    """
    jvm: Any = spark.sparkContext._jvm
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    made = compile_java(spark, "ForklessFileSystem")
    # Hadoop keeps file systems: the one there now must go, and ours is found by all others.
    system = jvm.org.apache.hadoop.fs.FileSystem
    root = jvm.java.net.URI("file:///")
    system.get(root, settings).close()
    settings.setClassLoader(made.getClassLoader())
    settings.set("fs.file.impl", made.getName())
    if system.get(root, settings).getClass().getName() != made.getName():
        raise RuntimeError("Hadoop kept its own file system")
    # Spark's other manager writes with FileContext, which has file systems of its own.
    managers = "org.apache.spark.sql.execution.streaming.checkpointing"
    spark.conf.set(
        "spark.sql.streaming.checkpointFileManagerClass",
        f"{managers}.FileSystemBasedCheckpointFileManager",
    )
