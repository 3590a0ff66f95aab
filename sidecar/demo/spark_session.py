"""A local Spark for the demo that leaves the terminal to the story."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

# Spark takes a configuration without any appender for none at all, and logs.
SILENT_LOG4J = """\
appender.none.type = Null
appender.none.name = none
rootLogger.level = off
rootLogger.appenderRef.none.ref = none
"""

# Better code takes longer to compile than a demo to run. The cache of code is as large as Java
# has it by default, but not with this option.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


def local_spark(folder: Path, conf: dict[str, str], event_log: str | None = None) -> Any:
    """Start Spark with two cores and ``conf``, silent, and everything it writes below ``folder``.

    Only the event log, if there is to be one, stays in a folder of its own.
    """
    from pyspark.sql import SparkSession

    log4j = folder / "log4j2.properties"
    log4j.write_text(SILENT_LOG4J)
    # Py4J logs the traceback of every foreachBatch that raises; the page tells it better.
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
    """Spark's settings for an event log that needs nothing extra to be read."""
    if name is None:
        return {}
    folder = Path(name).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
    }
