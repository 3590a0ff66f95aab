"""The third witness: reads the logs of the checkpoints that need it, in its own thread's steps.

Storage may hang for minutes, so nobody waits for this thread; who reads ``latest`` sees its age.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from .checkpoint import Checkpoint, CheckpointLogs, StorageError, needs_its_log
from .commit_log import LoggedBatches, LogReport
from .probing import ProbeReport, RunFacts

log = logging.getLogger("querypulse")

READ_EVERY_SECONDS = 1.0
RETRY_SECONDS = 10.0

OpenCheckpoint = Callable[[str, str], Checkpoint]
"""Opens a place for the query of an id; may raise StorageError."""


class LogReader:
    """Reads every ``interval_seconds``; every report is complete, so the newest wins.

    A storage that refuses is named in the report and asked again after ``RETRY_SECONDS``,
    so that its timeouts do not use up the time of the others.
    """

    def __init__(
        self,
        open_checkpoint: OpenCheckpoint,
        latest_probe: Callable[[], ProbeReport | None],
        on_report: Callable[[], None],
        *,
        interval_seconds: float = READ_EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.latest: LogReport | None = None
        self._open = open_checkpoint
        self._latest_probe = latest_probe
        self._on_report = on_report
        self._interval = interval_seconds
        self._clock = clock
        self._runs: dict[str, _Run] = {}
        self._poked = threading.Event()

    def step(self) -> None:
        """Read once, then rest until the next reading is due."""
        try:
            self.latest = self._read()
            self._on_report()
        finally:
            self._poked.wait(self._interval)
            self._poked.clear()

    def poke(self) -> None:
        """Read again as soon as possible."""
        self._poked.set()

    def _read(self) -> LogReport:
        at = self._clock()
        self._choose()
        logs, unreadable = {}, {}
        for run_id, run in self._runs.items():
            logged = run.read(self._open, self._clock)
            if logged is not None:
                logs[run_id] = logged
            else:
                unreadable[run_id] = run.trouble
        return LogReport(at, logs, unreadable)

    def _choose(self) -> None:
        """Keep what is known of the runs to be read now, and nothing else."""
        probe = self._latest_probe()
        chosen = [run.facts for run in probe.runs if needs_its_log(run)] if probe else []
        self._runs = {facts.run_id: self._runs.get(facts.run_id) or _Run(facts) for facts in chosen}


class _Run:
    """The logs of one run, and what is wrong with them."""

    def __init__(self, facts: RunFacts) -> None:
        self.trouble = ""
        self._facts = facts
        self._logs: CheckpointLogs | None = None
        self._retry_at: float | None = None

    def read(
        self, open_checkpoint: OpenCheckpoint, clock: Callable[[], float]
    ) -> LoggedBatches | None:
        """None while the storage refuses; ``trouble`` tells why."""
        if self._retry_at is not None and clock() < self._retry_at:
            return None
        try:
            if self._logs is None:
                checkpoint = open_checkpoint(self._facts.checkpoint, self._facts.query_id)
                self._logs = CheckpointLogs(checkpoint, gaps=self._facts.async_progress)
            logged = self._logs.read(clock())
        except StorageError as error:
            self._note_trouble(str(error))
            self._retry_at = clock() + RETRY_SECONDS
            return None
        self.trouble, self._retry_at = "", None
        return logged

    def _note_trouble(self, reason: str) -> None:
        if not self.trouble:
            name = self._facts.name or self._facts.query_id
            log.warning("querypulse: cannot read the checkpoint of %s: %s", name, reason)
        self.trouble = reason
