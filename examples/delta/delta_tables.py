"""The job's tables in Delta Lake, and the second writer of one of them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from ...commands.demo.pipeline import ALERTS, BRONZE, SCHEMA

DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Its default of 50 tasks per snapshot is meant for large tables.
    "spark.databricks.delta.snapshotPartitions": "1",
}
DATABASE = "fleet"
# A late CREATE does not open a resolved alert again.
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
    """Tables by name, each in its own folder; creates those that are read or merged into.

    The tables stay when the job ends, and the next job continues with them.
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
        """The folder of a table."""
        return self._folder / name

    def stream(self, name: str) -> Any:
        """A table's rows as a stream."""
        return self._spark.readStream.format("delta").load(str(self.path(name)))

    def merge(self, batch: Any) -> None:
        """Pair the alerts of a batch; for ``foreachBatch``.

        Delta Lake raises its own exception when another writer commits meanwhile.
        """
        batch.createOrReplaceTempView("actions")
        batch.sparkSession.sql(PAIR)

    def backfill(self) -> None:
        """Add an old alert in another session, as another job would; a lost conflict is fine."""
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
