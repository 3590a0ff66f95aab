"""The job: bronze, domain tables, and the pairing of alerts, all in one driver.

Subclasses contain what depends on the storage.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any


class ConcurrentAppendException(Exception):  # noqa: N818 - Delta's name for it
    """Another writer committed the version that this one wanted to write."""


SCHEMA = "vehicle string, kind string, value double, alert_id string, action string"
KINDS = ("position", "battery", "trip", "engine", "door", "tire")
BRONZE = "bronze"
ALERTS = "alert_resolution"
TRIGGER = "2 seconds"
PATIENCE_SECONDS = 20.0
CONFLICT_SECONDS = 120.0
POLL_SECONDS = 0.05


class Pipeline(ABC):
    """Starts the queries; ``names`` are in starting order, with the chosen query last.

    ``say`` receives a line for each step that takes time.
    """

    stall_floor_seconds = 15.0
    startup_seconds = 240.0
    """How long it may take until every query has committed."""

    def __init__(self, folder: Path, queries: int, say: Callable[[str], None]) -> None:
        self.names = [BRONZE, *domain_names(queries - 2), ALERTS]
        self.queries: dict[str, Any] = {}
        self.is_free = threading.Event()
        """Not set while another writer holds the chosen query's table."""
        self.is_free.set()
        self._folder = folder
        self._say = say
        self._failed_at: float | None = None

    def prepare(self) -> dict[str, str]:
        """Fetch what is needed before Spark starts; returns the Spark conf to set."""
        return {}

    @abstractmethod
    def start(self, spark: Any) -> None:
        """Start every query."""

    def conflict(self) -> float:
        """Commit to the chosen query's table, as a second writer, until the query fails.

        Returns the Unix time of the failure.

        Raises:
            TimeoutError: the query does not fail.

        """
        deadline = time.monotonic() + CONFLICT_SECONDS
        while self._failed_at is None:
            if time.monotonic() > deadline:
                raise TimeoutError("the demo's second writer caused no conflict")
            self._commit_as_another()
            time.sleep(0.01)
        return self._failed_at

    def block_commits(self, name: str) -> None:
        """Put a file in the place of the query's commit log: its commits fail."""
        log = self._folder / "checkpoints" / name / "commits"
        log.rename(log.with_name("commits.saved"))
        log.touch()

    def stop_query(self, name: str) -> None:
        """Stop a query; the chosen one between two batches, if that is soon possible.

        If Spark is interrupted in the Python function, its search for the cause overflows the
        stack (``StreamExecution.isInterruptionException``) and fills the terminal.
        """
        query = self.queries[name]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while name == ALERTS and query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        query.stop()

    def stop(self) -> None:
        """Stop every query."""
        self.is_free.set()
        for name in reversed(self.queries):
            self.stop_query(name)

    def close(self) -> None:  # noqa: B027 - only what prepare() has fetched needs it
        """Clean up after ``prepare``, once Spark has ended."""

    @abstractmethod
    def _commit_as_another(self) -> None:
        """Commit to the chosen query's table as another writer; a lost conflict is fine."""

    @abstractmethod
    def _merge(self, batch: Any) -> None:
        """Pair CREATE with RESOLVE in the table of alerts."""

    def _write(self, name: str, rows: Any, form: str, table: Path) -> None:
        """Start a query that appends to ``table``."""
        writer = self._writer(name, rows).format(form).option("path", str(table))
        self.queries[name] = writer.start()

    def _write_alerts(self, rows: Any) -> None:
        self.queries[ALERTS] = self._writer(ALERTS, rows).foreachBatch(self._pair).start()

    def _pair(self, batch: Any, _batch_id: int) -> None:
        self.is_free.wait()
        try:
            self._merge(batch)
        except Exception:
            self._failed_at = time.time()
            raise

    def _writer(self, name: str, rows: Any) -> Any:
        checkpoint = str(self._folder / "checkpoints" / name)
        writer = rows.writeStream.queryName(name).option("checkpointLocation", checkpoint)
        return writer.trigger(processingTime=TRIGGER)


def domain_names(count: int) -> list[str]:
    """Names of the domain tables: each kind of reading once, then again with a number."""
    rounds = (f"_{number}" if number else "" for number in range(count))
    names = (f"{kind}_status{suffix}" for suffix in rounds for kind in KINDS)
    return [name for name, _ in zip(names, range(count), strict=False)]


def kind_of(name: str) -> str:
    """The kind of reading that a domain table holds."""
    return name.partition("_")[0]


def make_folder(folder: Path) -> Path:
    """The folder, created if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


STATUS = {"CREATE": "open", "RESOLVE": "resolved"}
READINGS = (
    "concat('vehicle-', value % 12) AS vehicle",
    f"element_at(array{(*KINDS, 'alert')}, int(value % 7) + 1) AS kind",
    "double(value % 100) AS value",
    "concat('alert-', value div 14) AS alert_id",
    "if(value div 7 % 2 = 0, 'CREATE', 'RESOLVE') AS action",
)
"""Readings of a fleet from the rows of Spark's source ``rate``: each alert is created, and resolved
by the next one."""
ROWS_PER_SECOND = 30


class FilePipeline(Pipeline):
    """Readings -> Parquet tables; alerts are paired in a small table of our own: only Spark."""

    def __init__(self, folder: Path, queries: int, say: Callable[[str], None]) -> None:
        super().__init__(folder, queries, say)
        self.alerts: dict[str, str] = {}
        """Alert id -> ``open`` or ``resolved``."""
        self.version = 0
        """A merge into the table of alerts commits the next one, as in Delta Lake."""
        self._has_rival = False
        self._bronze = make_folder(folder / "tables" / BRONZE)

    def start(self, spark: Any) -> None:
        """Start every query."""
        rate = spark.readStream.format("rate").option("rowsPerSecond", ROWS_PER_SECOND).load()
        self._write(BRONZE, rate.selectExpr(*READINGS), "parquet", self._bronze)
        rows = spark.readStream.schema(SCHEMA).parquet(str(self._bronze))
        for name in self.names[1:-1]:
            own = rows.where(f"kind = '{kind_of(name)}'")
            self._write(name, own, "parquet", self._folder / "tables" / name)
        self._write_alerts(rows.where("kind = 'alert'"))

    def _commit_as_another(self) -> None:
        """Commit while the next batch is merged, that is between its read and its commit."""
        self._has_rival = True

    def _merge(self, batch: Any) -> None:
        """The later action of an alert wins."""
        rows = batch.select("alert_id", "action").collect()
        self.version += 1
        if self._has_rival:
            raise ConcurrentAppendException(
                "Files were added to table alert_resolution by a concurrent update: "
                f"version {self.version} was committed by another writer. Please try again."
            )
        self.alerts |= {row["alert_id"]: STATUS[row["action"]] for row in rows}
