"""``querypulse replay --spark``: the same evaluation as a Spark job, one task per application."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict, astuple
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import explode

from ..core.installed import NotInstalledError
from .engine import Change, Replayed, Terms, replay_application
from .log_files import Application, ReplayError, has_scheme
from .report import complaints, exit_code, summary

CHANGE = (
    "at timestamp, status string, alertname string, query string, severity string, "
    "reason string, app string"
)
REPLAYED = (
    "app string, path string, events long, unread long, began_at double, ended_at double, "
    "opened long, notifications long, error string, notes array<string>, is_recording boolean"
)
EVALUATED = f"{REPLAYED}, changes array<struct<{CHANGE}>>"


def replay_fleet(applications: Sequence[Application], terms: Terms, out: str) -> int:
    """Evaluate each application in its own task, write the table and print a summary.

    Raises:
        NotInstalledError: the session would be a Spark Connect session, which cannot run the tasks.
        ReplayError: the table exists already, or cannot be written.

    """
    table = _free_place(out)
    before = SparkSession.getActiveSession()
    spark = _session()
    try:
        evaluated = _evaluated(spark, applications, terms).persist()
        findings = evaluated.select(explode("changes").alias("change")).select("change.*")
        _write(findings, table)
        replays = [
            msgspec.convert(row.asDict(recursive=True), Replayed)
            for row in evaluated.drop("changes").collect()
        ]
        for replay in replays:
            sys.stderr.writelines(f"querypulse: {text}\n" for text in complaints(replay))
        sys.stdout.write(f"{summary(replays)}\nfindings: {out}\n")
    finally:
        if before is None:
            spark.stop()
    return exit_code(replays)


def _session() -> SparkSession:
    if "SPARK_REMOTE" in os.environ:
        raise NotInstalledError("replay --spark needs a classic Spark session: unset SPARK_REMOTE")
    # Without spark-submit nothing sets the Python of the tasks: use this one.
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("querypulse replay").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark


def _evaluated(spark: SparkSession, applications: Sequence[Application], terms: Terms) -> DataFrame:
    """One row per application: the counts and the changes."""
    tasks = spark.sparkContext.parallelize(applications, len(applications))
    return spark.createDataFrame(tasks.map(partial(_evaluate, terms)), EVALUATED)


def _evaluate(terms: Terms, application: Application) -> tuple[Any, ...]:
    """Runs in a task; returns a row of ``EVALUATED``."""
    replayed = Replayed(terms.app_name or application.label, application.path)
    changes = []
    try:
        found = replay_application(application, terms, replayed)
        changes = [_row(change) for change in found]
    except NotInstalledError as error:
        replayed.error = str(error)
    return (*astuple(replayed), changes)


def _row(change: Change) -> tuple[Any, ...]:
    at = datetime.fromisoformat(change.at.replace("Z", "+00:00"))
    return tuple((asdict(change) | {"at": at}).values())


def _free_place(out: str) -> str:
    """The URI of the table for Spark."""
    if has_scheme(out):
        return out
    path = Path(out).absolute()
    if path.exists():
        raise ReplayError(f"{out}: exists already; name another folder with --out")
    return path.as_uri()


def _write(findings: DataFrame, table: str) -> None:
    try:
        findings.write.parquet(table)
    except AnalysisException as error:
        raise ReplayError(f"{table}: {error}") from None
