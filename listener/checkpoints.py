"""The checkpoints of queries: which logs to read, the thread that reads them, and warnings."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

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


# -- log choice -------------------------------------------------------------------------------
# Chooses the checkpoints to read: those whose logs affect an alert.


class _Batch(msgspec.Struct, frozen=True):
    """The part of a run's activity that the choice depends on, and since when."""

    busy: bool
    batch_id: int | None
    since: float
    last_seconds: float
    """How long the run was busy the time before."""


class LogChoice:
    """Chooses runs from each probe report; times are monotonic seconds.

    Events and the growing batch id show every commit of an ordinary run. Its log is needed only
    when a stall alert is near: it shows whether the batch was committed, and it is the only
    signal for a run whose batch id Spark does not report. So the log is read once the probe polls
    the run's jobs and the batch takes longer than ``patience_seconds`` and than the last batch.
    A continuous query sends no events, and async progress tracking reports a commit before it is
    written, so for these only the log shows commits, and it is always read.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._batches: dict[str, _Batch] = {}

    def choose(self, runs: Iterable[ProbedRun], now: float) -> list[tuple[RunFacts, float]]:
        """The runs whose logs are to be read, and when the current batch of each began."""
        known = [run for run in runs if run.active and run.facts.checkpoint]
        self._batches = {run.facts.run_id: self._follow(run, now) for run in known}
        return [
            (run.facts, self._batches[run.facts.run_id].since)
            for run in known
            if _needs_its_log(run) or self._may_stall(run, now)
        ]

    def _follow(self, run: ProbedRun, now: float) -> _Batch:
        # With async progress tracking an idle run is busy at every trigger; ignore that.
        busy = not _needs_its_log(run) and (run.planning or run.processing)
        before = self._batches.get(run.facts.run_id)
        if before is not None and (before.busy, before.batch_id) == (busy, run.batch_id):
            return before
        return _Batch(busy, run.batch_id, now, _last_seconds(before, now))

    def _may_stall(self, run: ProbedRun, now: float) -> bool:
        batch = self._batches[run.facts.run_id]
        patience = max(self._patience, batch.last_seconds)
        return run.work is not None and batch.busy and now - batch.since >= patience


def _needs_its_log(run: ProbedRun) -> bool:
    return run.facts.trigger.is_continuous or run.facts.async_progress


def _last_seconds(before: _Batch | None, now: float) -> float:
    if before is None:
        return 0.0
    return now - before.since if before.busy else before.last_seconds


# -- starting points --------------------------------------------------------------------------
# Reads the starting point of each run once, from two listings of its checkpoint.


CLOCK_SET_SECONDS = 5.0
"""A larger step of the wall clock means that it was set."""


class StartingPoints:
    """Starting points by run id; used by one thread, but any thread may call ``lacks``.

    A run that has ended is read too, because it may have failed before the first reading. If the
    storage refuses, it is not read again for that run, which has no starting point. Runs that do
    not plan a batch before they run it are left out: ``continuous``, ``realTime``, and async
    progress tracking, which writes its logs only now and then.
    """

    def __init__(
        self,
        open_checkpoint: OpenCheckpoint,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._open = open_checkpoint
        self._wall = wall
        self._ahead: float | None = None
        self._known: dict[str, StartingPoint | None] = {}

    def lacks(self, runs: Iterable[ProbedRun]) -> bool:
        """Whether one of these has not been read."""
        return any(run.facts.run_id not in self._known for run in runs if _is_read(run.facts))

    def read(self, runs: Iterable[ProbedRun], now: float) -> dict[str, StartingPoint]:
        """The starting points of these runs by run id, at monotonic ``now``; drops all others."""
        if self._ahead is None:
            self._ahead = self._wall() - now
        before, self._known = self._known, {}
        for run in runs:
            run_id = run.facts.run_id
            if _is_read(run.facts):
                is_read = run_id in before
                self._known[run_id] = before[run_id] if is_read else self._point(run.facts, now)
        return {run_id: point for run_id, point in self._known.items() if point is not None}

    def _point(self, facts: RunFacts, now: float) -> StartingPoint | None:
        try:
            checkpoint = self._open(facts.checkpoint, facts.query_id)
            # Offsets first: a batch planned in between never seems unfinished, see CheckpointLogs.
            offsets, commits = checkpoint.times(OFFSETS), checkpoint.times(COMMITS)
        except StorageError as error:
            name = base_label(facts.name, facts.query_id)
            log.info("querypulse: the age of the checkpoint of %s is not known: %s", name, error)
            return None
        return starting_point(offsets, commits, now, self._wall_unless_set(now))

    def _wall_unless_set(self, now: float) -> float | None:
        """Unix seconds now; None if the wall clock was set since the first reading."""
        wall, ahead = self._wall(), self._ahead
        is_set = ahead is not None and abs(wall - now - ahead) > CLOCK_SET_SECONDS
        return None if is_set else wall


def _is_read(facts: RunFacts) -> bool:
    plans_first = not (facts.trigger.is_continuous or facts.trigger.is_real_time)
    return bool(facts.checkpoint) and plans_first and not facts.async_progress


# -- checkpoint logs --------------------------------------------------------------------------
# Finds the newest batch in a checkpoint's two logs with as few storage calls as possible.
#
# Each log holds one file per batch, named by its id. Spark removes all but about the newest
# hundred (``HDFSMetadataLog``, ``spark.sql.streaming.minBatchesToRetain``).


MAX_STEPS = 8
LIST_EVERY_SECONDS = 2.0


class CheckpointLogs:
    """Follows both logs of one run.

    A log without gaps is listed once; then only the next id is checked. Async progress
    tracking leaves gaps, so such a log is listed every ``LIST_EVERY_SECONDS``.
    """

    def __init__(self, checkpoint: SparkCheckpoint, *, gaps: bool) -> None:
        self._checkpoint = checkpoint
        self._gaps = gaps
        self._seen = LoggedBatches()
        self._listed_at: float | None = None

    def read(self, now: float) -> LoggedBatches:
        """The newest id in each log.

        ``offsets`` is read first: a batch planned and committed between the two reads makes
        ``planned`` briefly too small, but never makes a finished batch seem unfinished.

        Raises:
            StorageError: the storage did not answer; the last result is kept.

        """
        if not self._gaps:
            planned = self._follow(OFFSETS, self._seen.planned)
            committed = self._follow(COMMITS, self._seen.committed)
            self._seen = LoggedBatches(planned, committed)
        elif self._listed_at is None or now - self._listed_at >= LIST_EVERY_SECONDS:
            self._seen = LoggedBatches(self._list(OFFSETS), self._list(COMMITS))
            self._listed_at = now
        return self._seen

    def _follow(self, log: str, known: int | None) -> int | None:
        """Step on from the newest known id; list the log when that id is far behind or gone."""
        if known is None:
            return self._list(log)
        newest = known
        while newest - known < MAX_STEPS and self._checkpoint.has(log, newest + 1):
            newest += 1
        if known < newest < known + MAX_STEPS:
            return newest
        if newest == known and self._checkpoint.has(log, known):
            return known
        return self._list(log)

    def _list(self, log: str) -> int | None:
        return max(self._checkpoint.ids(log), default=None)


# -- log reader -------------------------------------------------------------------------------
# The commit log as a signal: reads the chosen logs in a thread of its own.
#
# Storage may hang for minutes, so nothing waits for this thread; ``latest`` shows its own age.


READ_EVERY_SECONDS = 1.0
RETRY_SECONDS = 10.0
MAX_REST_SECONDS = 15.0
REST_SHARE = 0.05
"""A log that has not grown for some time is not read again for this share of that time."""
STALL_FLOOR_SECONDS = 60.0


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
        before, self._runs = self._runs, {}
        for facts, since in chosen:
            run = before.get(facts.run_id) or _Run(facts, self._longest_rest)
            self._runs[facts.run_id], run.since = run, since
        return list(self._runs.values())


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


# -- checkpoint place -------------------------------------------------------------------------
# Whether the next start of a query can find its checkpoint again, and a warning if not.


_TEMPORARY = re.compile(r"/temporary-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/?$")
"""``Utils.createTempDir(namePrefix = "temporary")``, where no ``checkpointLocation`` is set."""
_OF_THE_MACHINE = re.compile(r"file:/+(tmp|var/tmp|dev/shm)(?:/|$)")
TEMPORARY = "temporary: no checkpointLocation is set, so each start of the query loses its progress"


def checkpoint_problem(checkpoint: str) -> str:
    """Why a checkpoint (``resolvedCheckpointRoot``) may be lost; empty when nothing is wrong."""
    if _TEMPORARY.search(checkpoint):
        return TEMPORARY
    found = _OF_THE_MACHINE.match(checkpoint)
    if found is None:
        return ""
    return f"under /{found.group(1)} on the driver's machine: another machine cannot read it"


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
