"""The job: bronze, domain tables, and the pairing of alerts, all in one driver."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from .alert_table import AlertTable
from .telemetry import KINDS, SCHEMA

BRONZE = "bronze"
ALERTS = "alert_resolution"
TRIGGER = "2 seconds"
PATIENCE_SECONDS = 5.0
STATUS = {"CREATE": "open", "RESOLVE": "resolved"}


class Pipeline:
    """Starts the queries; ``names`` in the order of their start, the fated one last."""

    def __init__(self, spark: Any, folder: Path, queries: int) -> None:
        self.names = [BRONZE, *domain_names(queries - 2), ALERTS]
        self.queries: dict[str, Any] = {}
        self.table = AlertTable(_made(folder / "tables" / ALERTS))
        self.landing = _made(folder / "landing")
        self._spark = spark
        self._folder = folder
        self._bronze = _made(folder / "tables" / BRONZE)

    def start(self) -> None:
        """Start every query."""
        files = self._spark.readStream.schema(SCHEMA)
        self._write(BRONZE, files.json(str(self.landing)), self._bronze)
        for name in self.names[1:-1]:
            kind = name.partition("_")[0]
            rows = files.parquet(str(self._bronze)).where(f"kind = '{kind}'")
            self._write(name, rows, _made(self._folder / "tables" / name))
        alerts = files.parquet(str(self._bronze)).where("kind = 'alert'")
        self.queries[ALERTS] = self._writer(ALERTS, alerts).foreachBatch(self._pair).start()

    def stop(self) -> None:
        """Stop every query."""
        self.table.unlock()
        deadline = time.monotonic() + PATIENCE_SECONDS
        for name in reversed(self.queries):
            self.stop_query(name, deadline - time.monotonic())

    def stop_query(self, name: str, patience: float = PATIENCE_SECONDS) -> None:
        """Stop a query between two batches, if there is such a moment within ``patience`` seconds.

        Interrupted in its Python function, Spark overflows its stack looking for the cause
        (``StreamExecution.isInterruptionException``) and fills the terminal with it.
        """
        query, deadline = self.queries[name], time.monotonic() + patience
        while query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(0.05)
        query.stop()

    def _write(self, name: str, rows: Any, table: Path) -> None:
        writer = self._writer(name, rows).format("parquet").option("path", str(table))
        self.queries[name] = writer.start()

    def _writer(self, name: str, rows: Any) -> Any:
        checkpoint = str(self._folder / "checkpoints" / name)
        writer = rows.writeStream.queryName(name).option("checkpointLocation", checkpoint)
        return writer.trigger(processingTime=TRIGGER)

    def _pair(self, batch: Any, _batch_id: int) -> None:
        """Pair CREATE with RESOLVE: the later action of an alert wins."""
        rows = batch.select("alert_id", "action").collect()
        self.table.merge({row["alert_id"]: STATUS[row["action"]] for row in rows})


def domain_names(count: int) -> list[str]:
    """Names of the domain tables: each kind of reading once, then again with a number."""
    rounds = (f"_{number}" if number else "" for number in range(count))
    names = (f"{kind}_status{suffix}" for suffix in rounds for kind in KINDS)
    return [name for name, _ in zip(names, range(count), strict=False)]


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
