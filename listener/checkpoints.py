"""The checkpoints of queries: the thread that reads them, what it reads of which, and warnings."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..core.text import listed
from .commit_log import (
    COMMITS,
    OFFSETS,
    LoggedBatches,
    LogReport,
    StartingPoint,
    StorageError,
    starting_point,
)
from .probe import ProbedRun, ProbeReport, RunFacts
from .state.identity import base_label
from .state.snapshot import Snapshot

if TYPE_CHECKING:
    # It needs pyspark, which readers of a status do not have.
    from .spark.storage import SparkCheckpoint

log = logging.getLogger("querypulse")

OpenCheckpoint = Callable[[str, str], "SparkCheckpoint"]
"""Opens the checkpoint at a path for a query id; may raise StorageError."""


# -- log reader -------------------------------------------------------------------------------
# Storage may hang for minutes, so nothing waits for this thread; ``latest`` shows its own age.

READ_EVERY_SECONDS = 2.0
RETRY_SECONDS = 10.0
MAX_REST_SECONDS = 15.0
REST_SHARE = 0.05
"""A log that has not grown for some time is not read again for this share of that time."""
STALL_FLOOR_SECONDS = 60.0
CLOCK_SET_SECONDS = 5.0
"""A larger step of the wall clock means that it was set."""


class LogReader:
    """Every ``interval_seconds``, reads the logs that decide something and are due.

    Events and the growing batch id show every commit of an ordinary run. Its log is needed only
    when a stall alert is near: once the probe polls the run's jobs and the batch takes longer than
    about half of ``stall_floor_seconds``, the shortest stall window of any query, and than the last
    batch. A continuous query sends no events, and async progress tracking reports a commit before
    it is written, so for these only the log shows commits, and it is always read.

    A log that has not grown for some time is due again after a twentieth of that time, at most
    ``MAX_REST_SECONDS`` and a quarter of ``stall_floor_seconds``, or when the run starts its next
    batch. A storage that fails is read again after ``RETRY_SECONDS``, so that its timeouts do not
    delay the other logs.

    The starting point of each run is read once, also of a run that has ended, which may have failed
    before the first reading.
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
        self._patience = stall_floor_seconds / 2 - 2 * interval_seconds
        self._longest_rest = min(MAX_REST_SECONDS, stall_floor_seconds / 4)
        self._interval = interval_seconds
        self._clock = clock
        self._wall = wall
        self._ahead: float | None = None
        self._runs: dict[str, _Run] = {}
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
        facts = (run.facts for run in probe.runs)
        if any(_has_starting_point(run) and run.run_id not in self._runs for run in facts):
            self.poke()

    def _read(self) -> LogReport:
        at, probe = self._clock(), self._latest_probe()
        wall = self._wall_unless_set(at)
        runs = probe.runs if probe is not None else ()
        self._runs = self._follow(runs, at)
        report = LogReport(at, {}, {}, {})
        for run_id, run in self._runs.items():
            start = run.starting_point(at, wall, self._clock)
            if start is not None:
                report.starts[run_id] = start
            if run.decides:
                logged = run.read(at, self._clock) if run.is_due(at, self._longest_rest) else None
                if logged is not None:
                    report.logs[run_id] = logged
                elif run.trouble:
                    report.unreadable[run_id] = run.trouble
        return report

    def _follow(self, runs: Iterable[ProbedRun], at: float) -> dict[str, _Run]:
        """The runs of this report; all others are dropped."""
        followed = {}
        for probed in runs:
            facts = probed.facts
            if facts.checkpoint:
                run = self._runs.get(facts.run_id) or _Run(facts, self._open, at)
                run.follow(probed, at, self._patience)
                followed[facts.run_id] = run
        return followed

    def _wall_unless_set(self, now: float) -> float | None:
        """Unix seconds now; None if the wall clock was set since the first reading."""
        wall = self._wall()
        if self._ahead is None:
            self._ahead = wall - now
        return None if abs(wall - now - self._ahead) > CLOCK_SET_SECONDS else wall


class _Run:
    """What one run's checkpoint has shown; times are monotonic seconds."""

    def __init__(self, facts: RunFacts, open_checkpoint: OpenCheckpoint, at: float) -> None:
        self.decides = False
        """Whether its log decides something now."""
        self.trouble = ""
        """Why its log could not be read."""
        self._facts = facts
        self._open = open_checkpoint
        self._checkpoint: SparkCheckpoint | None = None
        self._start: StartingPoint | None = None
        self._start_due = -math.inf if _has_starting_point(facts) else math.inf
        self._step: tuple[bool, int | None] = False, None
        """Whether it is busy, and with which batch."""
        self._since = at
        self._last_seconds = 0.0
        """How long it was busy the time before."""
        self._seen: LoggedBatches | None = None
        self._read_at = -math.inf
        self._grown_at = -math.inf
        self._retry_at = -math.inf

    def follow(self, probed: ProbedRun, at: float, patience: float) -> None:
        """Apply a poll of the run."""
        needs_log = self._facts.trigger.is_continuous or self._facts.async_progress
        # With async progress tracking an idle run is busy at every trigger; ignore that.
        busy = not needs_log and (probed.planning or probed.processing)
        if (busy, probed.batch_id) != self._step:
            if self._step[0]:
                self._last_seconds = at - self._since
            self._step, self._since = (busy, probed.batch_id), at
        is_long = at - self._since >= max(patience, self._last_seconds)
        may_stall = probed.work is not None and busy and is_long
        self.decides = probed.active and (needs_log or may_stall)

    def is_due(self, at: float, longest_rest: float) -> bool:
        """Whether to read the logs in the round that begins at ``at``."""
        if self.trouble:
            return at >= self._retry_at
        quiet = at - max(self._since, self._grown_at)
        return at - self._read_at >= min(longest_rest, REST_SHARE * quiet)

    def read(self, at: float, clock: Callable[[], float]) -> LoggedBatches | None:
        """The newest batches; None when the storage fails, and ``trouble`` holds the reason.

        Spark removes all but about the newest hundred files of a log (``HDFSMetadataLog``,
        ``minBatchesToRetain``), so a listing is as cheap as asking for one file. ``offsets`` is
        read first: a batch planned and committed between the two reads makes ``planned`` briefly
        too small, but never makes a finished batch seem unfinished.
        """
        try:
            checkpoint = self._checkpoint = self._checkpoint or self._opened()
            planned = max(checkpoint.ids(OFFSETS), default=None)
            logged = LoggedBatches(planned, max(checkpoint.ids(COMMITS), default=None))
        except StorageError as error:
            if not self.trouble:
                log.warning("querypulse: cannot read the checkpoint of %s: %s", self._name, error)
            self.trouble, self._retry_at = str(error), clock() + RETRY_SECONDS
            return None
        if self._seen not in (None, logged):
            self._grown_at = at
        self._seen, self._read_at, self.trouble = logged, at, ""
        return logged

    def starting_point(
        self, at: float, wall: float | None, clock: Callable[[], float]
    ) -> StartingPoint | None:
        """Where the run began, as its first reading shows it."""
        if at >= self._start_due:
            try:
                checkpoint = self._opened()
                # Offsets first, as in ``read``.
                offsets, commits = checkpoint.times(OFFSETS), checkpoint.times(COMMITS)
                self._start = starting_point(offsets, commits, at, wall)
                self._start_due = math.inf
            except StorageError as error:
                if self._start_due == -math.inf:
                    unknown = "querypulse: the age of the checkpoint of %s is not known: %s"
                    log.info(unknown, self._name, error)
                self._start_due = clock() + RETRY_SECONDS
        return self._start

    def _opened(self) -> SparkCheckpoint:
        return self._open(self._facts.checkpoint, self._facts.query_id)

    @property
    def _name(self) -> str:
        return base_label(self._facts.name, self._facts.query_id)


def _has_starting_point(facts: RunFacts) -> bool:
    """Whether it plans a batch before it runs it, and writes that to its log at once."""
    plans_first = not (facts.trigger.is_continuous or facts.trigger.is_real_time)
    return bool(facts.checkpoint) and plans_first and not facts.async_progress


# -- checkpoint place -------------------------------------------------------------------------


_TEMPORARY = re.compile(r"/temporary-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/?$")
"""``Utils.createTempDir(namePrefix = "temporary")``, where no ``checkpointLocation`` is set."""
_OF_THE_MACHINE = re.compile(r"file:/+(tmp|var/tmp|dev/shm)(?:/|$)")
TEMPORARY = "temporary: no checkpointLocation is set, so each start of the query loses its progress"


def checkpoint_problem(checkpoint: str) -> str:
    """Why a checkpoint (``resolvedCheckpointRoot``) may be lost; empty when nothing is wrong."""
    if _TEMPORARY.search(checkpoint):
        return TEMPORARY
    folder = _OF_THE_MACHINE.match(checkpoint)
    if folder is None:
        return ""
    return f"under /{folder.group(1)} on the driver's machine: another machine cannot read it"


class CheckpointWarnings:
    """Logs each problem once, with the first queries that have it; ``/status`` has it for each."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def poll(self, snapshot: Snapshot) -> None:
        """Log the problems that are new."""
        labels: dict[str, list[str]] = {}
        for query in snapshot.queries:
            problem = checkpoint_problem(query.facts.checkpoint) if query.facts is not None else ""
            if problem and problem not in self._logged:
                labels.setdefault(problem, []).append(query.label)
        for problem, queries in labels.items():
            log.warning("querypulse: the checkpoint of %s is %s", listed(queries), problem)
        self._logged.update(labels)
