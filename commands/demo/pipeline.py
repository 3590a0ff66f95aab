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

from .telemetry import KINDS

BRONZE = "bronze"
ALERTS = "alert_resolution"
TRIGGER = "2 seconds"
PATIENCE_SECONDS = 20.0
CONFLICT_SECONDS = 120.0
POLL_SECONDS = 0.05
SAVED = "commits.saved"


class Pipeline(ABC):
    """Starts the queries; ``names`` are in starting order, with the chosen query last.

    ``say`` receives a line for each step that takes time.
    """

    stall_floor_seconds = 15.0
    startup_seconds = 90.0
    """How long it may take until every query has committed."""

    def __init__(self, folder: Path, queries: int, say: Callable[[str], None]) -> None:
        self.names = [BRONZE, *domain_names(queries - 2), ALERTS]
        self.queries: dict[str, Any] = {}
        self.lock = WriterLock(made(folder / "locks") / ALERTS)
        self._folder = folder
        self._say = say
        self._failed = threading.Event()
        self._failed_at = 0.0
        self._stopping = threading.Event()
        self._second_writer: threading.Thread | None = None

    @abstractmethod
    def prepare(self) -> dict[str, str]:
        """Fetch what is needed before Spark starts; returns the Spark conf to set."""

    @abstractmethod
    def start(self, spark: Any) -> None:
        """Start telemetry and every query."""

    def conflict(self) -> float:
        """Let a second writer commit to the chosen query's table until the query fails.

        Returns the Unix time of the failure, without waiting for the writer's last commit.

        Raises:
            TimeoutError: the query does not fail, or the writer does.

        """
        self._second_writer = writer = threading.Thread(
            target=self._commit_often, name="demo-second-writer", daemon=True
        )
        writer.start()
        deadline = time.monotonic() + CONFLICT_SECONDS
        while not self._failed.wait(POLL_SECONDS):
            # It also ends because the query has failed meanwhile.
            broke = not writer.is_alive() and not self._failed.is_set()
            if broke or time.monotonic() > deadline:
                raise TimeoutError("the demo's second writer caused no conflict")
        return self._failed_at

    def block_commits(self, name: str) -> None:
        """Put a file in the place of the query's commit log, until ``stop``: its commits fail."""
        log = self._commits_of(name)
        log.rename(log.with_name(SAVED))
        log.touch()

    def stop_query(self, name: str) -> None:
        """Stop a query; the chosen one between two batches, if that is soon possible.

        If Spark is interrupted in the Python function, its search for the cause overflows the
        stack (``StreamExecution.isInterruptionException``) and fills the terminal.
        """
        query, deadline = self.queries[name], time.monotonic() + PATIENCE_SECONDS
        while name == ALERTS and query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(0.05)
        query.stop()

    def stop(self) -> None:
        """Stop telemetry, the second writer and every query."""
        self._stopping.set()
        if self._second_writer is not None:
            self._second_writer.join(PATIENCE_SECONDS)
        self.lock.give_back()
        for name in reversed(self.queries):
            self.stop_query(name)
            log = self._commits_of(name)
            if log.with_name(SAVED).exists():
                log.unlink()
                log.with_name(SAVED).rename(log)

    @abstractmethod
    def close(self) -> None:
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
        """Start the chosen query."""
        self.queries[ALERTS] = self._writer(ALERTS, rows).foreachBatch(self._pair).start()

    def _pair(self, batch: Any, _batch_id: int) -> None:
        self.lock.wait()
        try:
            self._merge(batch)
        except Exception:
            self._failed_at = time.time()
            self._failed.set()
            raise

    def _commit_often(self) -> None:
        while not (self._failed.is_set() or self._stopping.is_set()):
            self._commit_as_another()
            time.sleep(0.01)

    def _commits_of(self, name: str) -> Path:
        return self._checkpoint(name) / "commits"

    def _checkpoint(self, name: str) -> Path:
        return self._folder / "checkpoints" / name

    def _writer(self, name: str, rows: Any) -> Any:
        checkpoint = str(self._checkpoint(name))
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


def made(folder: Path) -> Path:
    """The folder, created if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class WriterLock:
    """A lock file: while it exists, somebody is writing."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def take(self) -> None:
        """Make every other writer wait."""
        self._path.touch()

    def give_back(self) -> None:
        """Release the lock."""
        self._path.unlink(missing_ok=True)

    def wait(self) -> None:
        """Wait until nobody holds it."""
        while self._path.exists():
            time.sleep(0.1)
