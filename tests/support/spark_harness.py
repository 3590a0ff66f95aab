"""Workloads: queries on one real Spark, each of which does what its name says."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener
from support.queries import SPARK_PATIENCE_SECONDS
from support.sources import BacklogReader, staged

TRIGGER = "2 seconds"


class SparkHarness:
    """A Spark, a folder per workload, and helper threads that act during the test."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.closing = threading.Event()
        self._folder = folder
        self._helpers: list[threading.Thread] = []
        self._at_close: list[Callable[[], object]] = []

    def folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def help(self, action: Callable[[], None]) -> None:
        """Run ``action`` in the background; it must end when ``closing`` is set."""
        helper = threading.Thread(target=action, name="workload", daemon=True)
        self._helpers.append(helper)
        helper.start()

    def at_close(self, action: Callable[[], object]) -> None:
        """Register an action that must precede the stop of the workload's query."""
        self._at_close.append(action)

    def close(self) -> None:
        """Run the registered actions and end the helpers."""
        self.closing.set()
        for action in self._at_close:
            action()
        for helper in self._helpers:
            helper.join(SPARK_PATIENCE_SECONDS)
            assert not helper.is_alive(), "a helper of a workload does not end"

    def rate(self, spark: Any = None) -> Any:
        """A few rows every second, read by one task."""
        stream = (spark or self.spark).readStream.format("rate")
        return stream.option("rowsPerSecond", 10).option("numPartitions", 1).load()

    def backlog(self, switch: Path) -> Any:
        """A source with a large lag, and rows from another source."""
        return staged(self.spark, BacklogReader, switch).union(self.rate().select("value"))

    def files(self, name: str) -> Any:
        """A stream of the files in the workload's folder ``in``: ``at`` in seconds, one file per batch."""
        folder = self.folder(name) / "in"
        folder.mkdir(exist_ok=True)
        stream = self.spark.readStream.schema("at long").option("maxFilesPerTrigger", 1)
        return stream.json(str(folder)).selectExpr("timestamp_seconds(at) AS timestamp")

    def drop(self, name: str, number: int, at: int) -> None:
        """Add a file with one row to the workload's folder ``in``."""
        folder = self.folder(name)
        path = folder / f"{number}.json"
        path.write_text(json.dumps({"at": at}))
        path.rename(folder / "in" / path.name)

    def start(self, stream: Any, name: str | None, sink: Any = "noop", **options: Any) -> Any:
        """Start a query with a checkpoint in the folder of ``checkpoint``, by default its name."""
        folder = self.checkpoint(options.pop("checkpoint", name or "unnamed"))
        trigger = options.pop("trigger", {"processingTime": TRIGGER})
        writer = stream.writeStream.outputMode(options.pop("mode", "append"))
        writer = writer.trigger(**trigger).options(**options)
        writer = writer.foreachBatch(sink) if callable(sink) else writer.format(sink)
        if name is not None:
            writer = writer.queryName(name)
        return writer.option("checkpointLocation", str(folder)).start()

    def checkpoint(self, name: str) -> Path:
        return self.folder(name) / "checkpoint"

    def committed(self, name: str) -> int:
        """The newest batch in a workload's commit log, or -1."""
        log = self.checkpoint(name) / "commits"
        ids = (
            [int(path.name) for path in log.iterdir() if path.name.isdecimal()]
            if log.exists()
            else []
        )
        return max(ids, default=-1)


@dataclass
class Life:
    """What the sidecar has published about one workload."""

    states: list[str] = field(default_factory=list)
    runs: set[str] = field(default_factory=set)
    commits: set[int] = field(default_factory=set)
    lags: list[float] = field(default_factory=list)
    longest_flight: float = 0.0
    longest_silence: float = 0.0

    def note(self, shown: Any) -> None:
        if self.states[-1:] != [shown.state]:
            self.states.append(shown.state)
        if shown.run_id is not None:
            self.runs.add(shown.run_id)
        if shown.last_commit_batch is not None:
            self.commits.add(shown.last_commit_batch)
        if shown.lag_offsets is not None and self.lags[-1:] != [shown.lag_offsets]:
            self.lags.append(shown.lag_offsets)
        self.longest_flight = max(self.longest_flight, shown.batch_in_flight_seconds or 0.0)
        self.longest_silence = max(self.longest_silence, shown.last_commit_age_seconds or 0.0)

    @property
    def state(self) -> str:
        return self.states[-1] if self.states else "never seen"


class Diary(defaultdict[str, Life]):
    """The histories of all workloads by their labels, recorded in the background."""

    def __init__(self, harness: SparkHarness, sidecar: Any) -> None:
        super().__init__(Life)
        self._harness = harness
        self._sidecar = sidecar
        self._began_at = time.monotonic()
        harness.help(self._write)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began_at

    def in_state(self, state: str) -> set[str]:
        # A copy, because the writer may add a workload meanwhile.
        return {label for label, life in list(self.items()) if life.state == state}

    def _write(self) -> None:
        while not self._harness.closing.wait(0.2):
            for shown in self._sidecar.snapshot().queries:
                self[shown.name].note(shown)


class JobListener(StreamingQueryListener):
    """Another listener of the job: counts batches and ends, and calls ``act`` at both and when idle."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        self.batches, self.ends = 0, 0
        self._act = act

    def onQueryStarted(self, event):
        pass

    def onQueryIdle(self, event):
        self._act()

    def onQueryProgress(self, event):
        self.batches += 1
        self._act()

    def onQueryTerminated(self, event):
        self.ends += 1
        self._act()
