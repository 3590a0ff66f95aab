"""The job's tables in Delta Lake, and the second writer of one of them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from ..telemetry import SCHEMA
from .pipeline import ALERTS, BRONZE

DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Its default of 50 tasks for each look at a table is meant for large ones.
    "spark.databricks.delta.snapshotPartitions": "1",
}
DATABASE = "fleet"
# An alert that was resolved is not opened again by a CREATE that comes late.
PAIR = """\
MERGE INTO fleet.alert_resolution AS known
USING (
  SELECT alert_id, if(bool_or(action = 'RESOLVE'), 'resolved', 'open') AS status
  FROM actions GROUP BY alert_id
) AS news
ON known.alert_id = news.alert_id
WHEN MATCHED AND news.status = 'resolved' THEN UPDATE SET *
WHEN NOT MATCHED THEN INSERT *
"""
BACKFILL = """\
MERGE INTO fleet.alert_resolution AS known
USING old
ON known.alert_id = old.alert_id
WHEN NOT MATCHED THEN INSERT *
"""
_LOST = "DELTA_CONCURRENT_"


class DeltaTables:
    """Tables by name, each in a folder of its own; those that are read or merged into are made.

    A table stays when the job ends; a job that begins anew finds it there.
    """

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._another = spark.newSession()
        self._numbers = itertools.count()
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        self._make(BRONZE, SCHEMA)
        self._make(ALERTS, "alert_id string, status string")

    def path(self, name: str) -> Path:
        """Where a table lies."""
        return self._folder / name

    def stream(self, name: str) -> Any:
        """A table's rows, as they come."""
        return self._spark.readStream.format("delta").load(str(self.path(name)))

    def merge(self, batch: Any) -> None:
        """Pair the alerts of a batch; to be called in ``foreachBatch``.

        Delta Lake's own exception is raised when another writer commits meanwhile.
        """
        batch.createOrReplaceTempView("actions")
        batch.sparkSession.sql(PAIR)

    def backfill(self) -> None:
        """Add an old alert as another job does, in a session of its own; to lose is no error."""
        number = next(self._numbers)
        old = self._another.range(number, number + 1)
        old = old.selectExpr("concat('backfill-', id) AS alert_id", "'resolved' AS status")
        old.createOrReplaceTempView("old")
        try:
            self._another.sql(BACKFILL)
        except Exception as error:
            if _LOST not in str(error):
                raise

    def _make(self, name: str, schema: str) -> None:
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {DATABASE}.{name} ({schema}) USING delta "
            f"LOCATION '{self.path(name)}'"
        )
