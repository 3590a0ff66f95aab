"""A local Spark for the demo that leaves the terminal to the story."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# Spark takes a configuration without any appender for none at all, and logs.
SILENT_LOG4J = """\
appender.none.type = Null
appender.none.name = none
rootLogger.level = off
rootLogger.appenderRef.none.ref = none
"""
NO_SPARK = "the demo needs PySpark: pip install 'querypulse[spark]'"
NO_JAVA = (
    "the demo needs Java 17 or newer: install it (Debian: openjdk-17-jre-headless) or set JAVA_HOME"
)


class NotInstalledError(Exception):
    """Something the demo needs is not on this machine; the message says what."""


def require_spark() -> None:
    """Check that Spark can be started here.

    Raises:
        NotInstalledError: there is no Java, or no PySpark.

    """
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise NotInstalledError(NO_JAVA)
    if find_spec("pyspark") is None:
        raise NotInstalledError(NO_SPARK)


def local_spark(folder: Path) -> Any:
    """Start Spark with two cores, silent, and everything it writes below ``folder``."""
    from pyspark.sql import SparkSession

    log4j = folder / "log4j2.properties"
    log4j.write_text(SILENT_LOG4J)
    # Py4J logs the traceback of every foreachBatch that raises; the page tells it better.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--driver-java-options -Dlog4j2.configurationFile={log4j.as_uri()} pyspark-shell"
    )
    builder = SparkSession.builder.master("local[2]").appName("telemetry")
    for key, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
