"""``spark-pipelines run`` of a declarative pipeline, in a process of its own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from .driver import Driver

IS_HERE = importlib.util.find_spec("pyspark.pipelines") is not None
"""From Spark 4.1 on."""
CATALOG = "spark_catalog.default"
"""Before the name of a table; both are the name of its flow, and of the flow's query."""
CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
}
SPECIFICATION = """
name: flows
storage: file://{folder}/storage
libraries:
  - glob:
      include: flows/**
"""
DEFINITIONS = """
import os
import time
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr
spark = SparkSession.active()
def rows():
    return spark.readStream.schema("value long").json(os.environ["ROWS"])
@dp.table
def bronze():
    return rows()
@dp.table
def silver():
    return spark.readStream.table("bronze")
"""
"""Two flows that complete."""
BROKEN = """
@dp.table
def broken():
    return rows().withColumn("x", expr("raise_error('no such order')"))
"""
"""One that fails in its first batch."""


def flow(name: str) -> str:
    """The name of the query that fills a table."""
    return f"{CATALOG}.{name}"


def run_pipeline(
    definitions: str,
    folder: Path,
    *,
    remote: str | None = None,
    python: str = sys.executable,
    **environment: str,
) -> Driver:
    """Run the pipeline with these definitions: in a driver of its own, or at a Connect server."""
    (folder / "in").mkdir()
    (folder / "in" / "1.json").write_text('{"value": 1}\n{"value": 2}\n')
    (folder / "storage").mkdir()
    (folder / "flows").mkdir()
    (folder / "flows" / "flows.py").write_text(definitions)
    conf = [word for name, value in CONF.items() for word in ("--conf", f"{name}={value}")]
    where = conf if remote is None else ["--remote", remote]
    program = str(Path(sys.executable).with_name("spark-pipelines"))
    return Driver(
        SPECIFICATION.format(folder=folder),
        folder,
        header="",
        name="spark-pipeline.yml",
        cwd=folder,
        command=(program, "run", *where, "--spec"),
        PYSPARK_PYTHON=python,
        ROWS=str(folder / "in"),
        # Spark's own tests set it: the server takes a free port, and its client asks for it.
        SPARK_TESTING="1",
        **environment,
    )
