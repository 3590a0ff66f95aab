"""The job on files: it needs only Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .alert_table import AlertTable
from .pipeline import ALERTS, BRONZE, Pipeline, kind_of, made
from .telemetry import SCHEMA, FileDrop, Fleet

STATUS = {"CREATE": "open", "RESOLVE": "resolved"}


class FilePipeline(Pipeline):
    """JSON files -> Parquet tables; alerts are paired in a small table of our own."""

    def __init__(self, folder: Path, queries: int, say: Callable[[str], None]) -> None:
        super().__init__(folder, queries, say)
        self.table = AlertTable(made(folder / "tables" / ALERTS))
        self._landing = made(folder / "landing")
        self._bronze = made(folder / "tables" / BRONZE)
        self._fleet = Fleet(FileDrop(self._landing))

    def prepare(self) -> dict[str, str]:
        """Nothing is needed."""
        return {}

    def start(self, spark: Any) -> None:
        """Start telemetry and every query."""
        self._fleet.start()
        files = spark.readStream.schema(SCHEMA)
        self._write(BRONZE, files.json(str(self._landing)), "parquet", self._bronze)
        for name in self.names[1:-1]:
            rows = files.parquet(str(self._bronze)).where(f"kind = '{kind_of(name)}'")
            self._write(name, rows, "parquet", made(self._folder / "tables" / name))
        self._write_alerts(files.parquet(str(self._bronze)).where("kind = 'alert'"))

    def stop(self) -> None:
        """Stop telemetry and every query."""
        self._fleet.stop()
        super().stop()

    def close(self) -> None:
        """There is nothing to clean up."""

    def _commit_as_another(self) -> None:
        self.table.rival = self.table.compact

    def _merge(self, batch: Any) -> None:
        """The later action of an alert wins."""
        rows = batch.select("alert_id", "action").collect()
        self.table.merge({row["alert_id"]: STATUS[row["action"]] for row in rows})
