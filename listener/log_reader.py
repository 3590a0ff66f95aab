"""The commit log as a signal: reads the chosen logs in a thread of its own.

Storage may hang for minutes, so nothing waits for this thread; ``latest`` shows its own age.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable

from .checkpoint import CheckpointLogs, StorageError
from .commit_log import LoggedBatches, LogReport
from .labels import base_label
from .log_choice import ChosenRun, LogChoice
from .probing import ProbedRun, ProbeReport, RunFacts
from .starting_points import ReadableCheckpoint, StartingPoints

log = logging.getLogger("querypulse")

READ_EVERY_SECONDS = 1.0
RETRY_SECONDS = 10.0
MAX_REST_SECONDS = 15.0
REST_SHARE = 0.05
"""A log that has not grown for some time is not read again for this share of that time."""
STALL_FLOOR_SECONDS = 60.0

OpenCheckpoint = Callable[[str, str], ReadableCheckpoint]
"""Opens the checkpoint at a path for a query id; may raise StorageError."""


class LogReader:
    """Every ``interval_seconds``, reads the logs that are due; a report holds only these.

    A log that grows is due each time. A log that has not grown for some time is due again after
    a twentieth of that time, so a query that hangs for hours costs little and a commit is seen
    at most that late. The pause is at most ``MAX_REST_SECONDS`` and a quarter of
    ``stall_floor_seconds``, the shortest stall window of any query, so the log never counts as
    unread. It ends early when the run starts its next batch.

    A storage that fails is listed in every report and read again after ``RETRY_SECONDS``, so
    that its timeouts do not delay the other logs.

    The starting point of each run is read once.
    """

    def __init__(
        self,
        open_checkpoint: OpenCheckpoint,
        latest_probe: Callable[[], ProbeReport | None],
        on_report: Callable[[], None],
        *,
        stall_floor_seconds: float = STALL_FLOOR_SECONDS,
        interval_seconds: float = READ_EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.latest: LogReport | None = None
        self._open = open_checkpoint
        self._latest_probe = latest_probe
        self._on_report = on_report
        # Two steps early: one step may pass before the batch is seen, one before its log is read.
        self._choice = LogChoice(stall_floor_seconds / 2 - 2 * interval_seconds)
        self._longest_rest = min(MAX_REST_SECONDS, stall_floor_seconds / 4)
        self._interval = interval_seconds
        self._clock = clock
        self._runs: dict[str, _Run] = {}
        self._starts = StartingPoints(open_checkpoint, wall=wall)
        self._poked = threading.Event()

    def step(self) -> None:
        """Read the logs that are due, then wait until the next step."""
        try:
            self.latest = self._read()
            self._on_report()
        finally:
            self._poked.wait(self._interval)
            self._poked.clear()

    def poke(self) -> None:
        """Take the next step as soon as possible."""
        self._poked.set()

    def poke_for(self, probe: ProbeReport) -> None:
        """Take the next step as soon as possible if a run is new, because it may fail soon."""
        if self._starts.lacks(probe.runs):
            self.poke()

    def _read(self) -> LogReport:
        at, probe = self._clock(), self._latest_probe()
        runs = probe.runs if probe is not None else ()
        logs, unreadable = {}, {}
        for run in self._follow(runs, at):
            logged = run.read(at, self._open, self._clock) if run.is_due(at) else None
            if logged is not None:
                logs[run.facts.run_id] = logged
            elif run.trouble:
                unreadable[run.facts.run_id] = run.trouble
        return LogReport(at, logs, unreadable, self._starts.read(runs, at))

    def _follow(self, runs: Iterable[ProbedRun], at: float) -> list[_Run]:
        """Keep the state of the runs chosen now and drop all other state."""
        chosen = self._choice.choose(runs, at)
        self._runs = {one.facts.run_id: self._run(one) for one in chosen}
        return list(self._runs.values())

    def _run(self, chosen: ChosenRun) -> _Run:
        run = self._runs.get(chosen.facts.run_id) or _Run(chosen.facts, self._longest_rest)
        run.since = chosen.since
        return run


class _Run:
    """The logs of one run, when they are due, and their last error."""

    since = 0.0

    def __init__(self, facts: RunFacts, longest_rest: float) -> None:
        self.facts = facts
        self.trouble = ""
        self._longest_rest = longest_rest
        self._logs: CheckpointLogs | None = None
        self._seen: LoggedBatches | None = None
        self._read_at = -math.inf
        self._grown_at = -math.inf
        self._retry_at: float | None = None

    def is_due(self, at: float) -> bool:
        """Whether to read the logs in the round that begins at ``at``."""
        if self._retry_at is not None:
            return at >= self._retry_at
        quiet = at - max(self.since, self._grown_at)
        return at - self._read_at >= min(self._longest_rest, REST_SHARE * quiet)

    def read(
        self, at: float, open_checkpoint: OpenCheckpoint, clock: Callable[[], float]
    ) -> LoggedBatches | None:
        """The newest batches; None when the storage fails, and ``trouble`` holds the reason."""
        try:
            if self._logs is None:
                checkpoint = open_checkpoint(self.facts.checkpoint, self.facts.query_id)
                self._logs = CheckpointLogs(checkpoint, gaps=self.facts.async_progress)
            logged = self._logs.read(clock())
        except StorageError as error:
            self._note_trouble(str(error))
            self._retry_at = clock() + RETRY_SECONDS
            return None
        if self._seen not in (None, logged):
            self._grown_at = at
        self._seen, self._read_at = logged, at
        self.trouble, self._retry_at = "", None
        return logged

    def _note_trouble(self, reason: str) -> None:
        if not self.trouble:
            name = base_label(self.facts.name, self.facts.query_id)
            log.warning("querypulse: cannot read the checkpoint of %s: %s", name, reason)
        self.trouble = reason
