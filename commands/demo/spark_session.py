"""A local Spark for the demo that logs nothing to the terminal."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

# Spark ignores a configuration without appenders, and would log.
SILENT_LOG4J = """\
appender.none.type = Null
appender.none.name = none
rootLogger.level = off
rootLogger.appenderRef.none.ref = none
"""

# In a short demo, full optimization costs more than it gains. The code cache gets Java's default
# size, which this option would reduce.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


def local_spark(folder: Path, conf: dict[str, str], event_log: str | None = None) -> Any:
    """Start Spark with two cores and ``conf``, without logging; it writes below ``folder``.

    Only the event log, if any, has its own folder.
    """
    from pyspark.sql import SparkSession

    log4j = folder / "log4j2.properties"
    log4j.write_text(SILENT_LOG4J)
    # Py4J logs the traceback of every foreachBatch that raises; the page shows it more clearly.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    java = f"{QUICK_START} -Dlog4j2.configurationFile={log4j.as_uri()}"
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-java-options '{java}' pyspark-shell"
    builder = SparkSession.builder.master("local[2]").appName("telemetry")
    for key, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **_event_log(event_log),
        **conf,
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _event_log(name: str | None) -> dict[str, str]:
    """Spark's settings for an uncompressed event log, which needs no extra package to read."""
    if name is None:
        return {}
    folder = Path(name).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
    }
