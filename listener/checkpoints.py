"""The checkpoints of queries: the thread that reads them, what it reads of which, and warnings."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..core.threads import TimedCall, TimedCalls
from .commit_log import (
    COMMITS,
    OFFSETS,
    SINK_LOG,
    FileTimes,
    LoggedBatches,
    LogReport,
    SinkLog,
    StartingPoint,
    StorageError,
    sink_log,
    starting_point,
)
from .probe_report import ProbedRun, ProbeReport, RunFacts, is_temporary
from .state.identity import base_label
from .stores import store_of

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
REST_SHARE = 0.05
"""A log is read again after this share of the shortest stall window of any query."""
LONGEST_REST_SECONDS = 15.0
STALL_FLOOR_SECONDS = 60.0
SINK_SECONDS = 15.0
"""A sink's log is read again after so long, while it decides something or does not answer."""
SINK_PATIENCE_SECONDS = 1.0
"""An answer that comes later is read by a later step."""
FEW_BATCHES = 20
"""A checkpoint with more of them is not new; a run commits some before its first reading."""
CLOCK_SET_SECONDS = 5.0
"""A larger step of the wall clock means that it was set."""


class LogReader:
    """Every ``interval_seconds``, reads the logs that decide something and are due.

    Events and the growing batch id show every commit of an ordinary run. Its log is needed only
    when a stall alert is near: once the probe polls the run's jobs and the batch takes longer than
    about half of ``stall_floor_seconds``, the shortest stall window of any query, and than the last
    batch. A continuous query sends no events, and async progress tracking reports a commit before
    it is written, so for these only the log shows commits, and it is always read.

    A log is due again after a twentieth of ``stall_floor_seconds``, at most 15 s. A storage that
    fails is read again after ``RETRY_SECONDS``, so that its timeouts do not delay the other logs.

    The starting point of each run is read once, also of a run that has ended, which may have failed
    before the first reading. So is the log of its file sink, and again while that has batches which
    the run has not planned, or while another run writes the same folder. It may be in a store that
    hangs while the checkpoint's answers: it is read in a thread of its own, once the checkpoints
    have been reported, and a store that hangs is waited for once, however many sinks are there.
    """

    def __init__(
        self,
        open_checkpoint: OpenCheckpoint,
        latest_probe: Callable[[], ProbeReport | None],
        on_report: Callable[[], None],
        *,
        stall_floor_seconds: float = STALL_FLOOR_SECONDS,
        interval_seconds: float = READ_EVERY_SECONDS,
        sink_patience_seconds: float = SINK_PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.latest: LogReport | None = None
        self._open = open_checkpoint
        self._latest_probe = latest_probe
        self._on_report = on_report
        # Two steps early: one step may pass before the batch is seen, one before its log is read.
        self._patience = stall_floor_seconds / 2 - 2 * interval_seconds
        self._rest = min(LONGEST_REST_SECONDS, REST_SHARE * stall_floor_seconds)
        self._interval = interval_seconds
        self._clock = clock
        self._wall = wall
        self._ahead: float | None = None
        self._runs: dict[str, _Run] = {}
        self._sink_calls = TimedCalls("sinks")
        self._sink_seconds = sink_patience_seconds
        self._poked = threading.Event()

    def step(self) -> None:
        """Read the logs that are due, then wait until the next step."""
        try:
            report = self.latest = self._read()
            self._on_report()
            sinks = self._read_sinks()
            if sinks != report.sinks:
                self.latest = replace(report, sinks=sinks)
                self._on_report()
        finally:
            self._poked.wait(self._interval)
            self._poked.clear()

    def close(self) -> None:
        """End the thread that reads the logs of sinks."""
        self._sink_calls.close()

    def poke(self) -> None:
        """Take the next step as soon as possible."""
        self._poked.set()

    def poke_for(self, probe: ProbeReport) -> None:
        """Take the next step as soon as possible if a run is new, because it may fail soon."""
        facts = (run.facts for run in probe.runs)
        if any(_has_starting_point(run) and run.run_id not in self._runs for run in facts):
            self.poke()

    def _read(self) -> LogReport:
        at = self._clock()
        probe = self._latest_probe()
        wall = self._wall_unless_set(at)
        report = LogReport(at, {}, {}, {})
        runs = dict[str, _Run]()
        for probed in probe.runs if probe is not None else ():
            run_id = probed.facts.run_id
            if probed.facts.checkpoint:
                runs[run_id] = self._runs.get(run_id) or self._new_run(probed.facts, at)
                runs[run_id].follow(probed, at, self._patience)
        self._runs = runs
        for run_id, run in runs.items():
            logged = self._read_run(run, at, wall)
            if run.sink is not None:
                report.sinks[run_id] = run.sink
            if run.start is not None:
                report.starts[run_id] = run.start
            if logged is not None:
                report.logs[run_id] = logged
            elif run.decides and run.trouble:
                report.unreadable[run_id] = run.trouble
        return report

    def _new_run(self, facts: RunFacts, at: float) -> _Run:
        store = store_of(_file_sink(facts))
        return _Run(facts, at, TimedCall(self._sink_calls, store, self._sink_seconds))

    def _read_run(self, run: _Run, at: float, wall: float | None) -> LoggedBatches | None:
        """What is due of a run; None if that is nothing, or when the storage fails.

        ``offsets`` is read first: a batch planned and committed between the two reads makes
        ``planned`` briefly too small, but never makes a finished batch seem unfinished.
        """
        is_due = run.decides and at - run.read_at >= self._rest
        needs_begin = run.needs_begin and at >= run.begin_at
        if at < run.retry_at or not (is_due or run.needs_start or needs_begin):
            return None
        try:
            checkpoint = self._checkpoint(run)
            offsets = checkpoint.files(OFFSETS)
            commits = checkpoint.files(COMMITS)
            # After the plans: its sources write where they begin before the first one.
            begins = _begins(checkpoint) if run.may_be_new(commits) else {}
        except StorageError as error:
            run.retry_at = self._clock() + RETRY_SECONDS
            run.trouble = str(error)
        else:
            run.trouble = ""
            if run.needs_start or run.needs_begin:
                run.begin(starting_point(offsets, commits, at, wall), begins, at)
        run.warn()
        if run.trouble or not is_due:
            return None
        run.read_at = at
        return LoggedBatches(max(offsets, default=None), max(commits, default=None))

    def _checkpoint(self, run: _Run) -> SparkCheckpoint:
        checkpoint = run.checkpoint or self._open(run.facts.checkpoint, run.facts.query_id)
        # It holds Java objects, and reports keep hundreds of runs that have ended.
        run.checkpoint = checkpoint if run.decides else None
        return checkpoint

    def _read_sinks(self) -> dict[str, SinkLog]:
        """Read the logs of sinks that are due; what is known of each, by run id."""
        at = self._clock()
        wall = self._wall_unless_set(at)
        shared = _shared_sinks(self._runs)
        for run in self._runs.values():
            run.shares_sink = run.sink_path in shared
            if run.sink_decides and at >= max(run.sink_due_at, run.retry_at):
                self._read_sink(run, at, wall)
        runs = self._runs.items()
        return {run_id: run.sink for run_id, run in runs if run.sink is not None}

    def _read_sink(self, run: _Run, at: float, wall: float | None) -> None:
        """Read the log of a run's sink, and then its plans, so that no batch of it seems foreign.

        A late answer is asked for in each step, which costs nothing, and after a while less often.
        """
        path = run.sink_path
        query_id = run.facts.query_id
        asked_at = run.sink_asked_at = at if run.sink_asked_at is None else run.sink_asked_at
        try:
            written = run.sink_call.run(lambda: self._open(path, query_id).files(SINK_LOG))
        except TimeoutError:
            if at - asked_at >= SINK_SECONDS:
                run.sink = SinkLog(trouble=f"{path} does not answer")
                run.sink_due_at = at + SINK_SECONDS
            return
        except StorageError as error:
            run.sink = SinkLog(trouble=str(error))
        else:
            try:
                offsets = self._checkpoint(run).files(OFFSETS)
                run.sink = sink_log(written, offsets, run.began_wall(at, wall))
            except StorageError as error:
                run.retry_at = self._clock() + RETRY_SECONDS
                run.trouble = str(error)
        run.sink_asked_at = None
        run.sink_due_at = at + SINK_SECONDS

    def _wall_unless_set(self, now: float) -> float | None:
        """Unix seconds now; None if the wall clock was set since the first reading."""
        wall = self._wall()
        if self._ahead is None:
            self._ahead = wall - now
        return None if abs(wall - now - self._ahead) > CLOCK_SET_SECONDS else wall


class _Run:
    """What one run's checkpoint has shown; times are monotonic seconds."""

    def __init__(self, facts: RunFacts, at: float, sink_call: TimedCall[FileTimes]) -> None:
        self.facts = facts
        self.sink_call = sink_call
        self.seen_at = at
        self.checkpoint: SparkCheckpoint | None = None
        self.start: StartingPoint | None = None
        """Where it began, as its first reading shows it."""
        self.needs_start = self.needs_begin = _has_starting_point(facts)
        self.begin_at = -math.inf
        """When it is read again where a new checkpoint begins."""
        self.decides = False
        """Whether its log decides something now."""
        self.trouble = ""
        """Why its checkpoint could not be read."""
        self.sink_path = _file_sink(facts) if self.needs_start else ""
        self.sink: SinkLog | None = None
        """What the log of its sink has shown."""
        self.shares_sink = False
        """Whether another active run writes the same folder."""
        self.read_at = self.retry_at = self.sink_due_at = -math.inf
        self.sink_asked_at: float | None = None
        """Since when a reading of that log has had no answer."""
        self.is_active = False
        self._warned = False
        self._step: tuple[bool, int | None] = False, None
        """Whether it is busy, and with which batch."""
        self._since = self._began_at = at
        self._last_seconds = 0.0
        """How long it was busy the time before."""

    def follow(self, probed: ProbedRun, at: float, patience: float) -> None:
        """Apply a poll of the run."""
        needs_log = self.facts.trigger.is_continuous or self.facts.async_progress
        # With async progress tracking an idle run is busy at every trigger; ignore that.
        busy = not needs_log and (probed.planning or probed.processing)
        if (busy, probed.batch_id) != self._step:
            if self._step[0]:
                self._last_seconds = at - self._since
            self._step = (busy, probed.batch_id)
            self._since = at
        is_long = at - self._since >= max(patience, self._last_seconds)
        may_stall = probed.work is not None and busy and is_long
        self.decides = probed.active and (needs_log or may_stall)
        self.is_active = probed.active
        # A run that is over plans no batch any more.
        self.needs_begin &= probed.active or self.start is None

    @property
    def sink_decides(self) -> bool:
        """Whether the log of its sink is to be read: not yet, or it may show more than before."""
        if not self.sink_path or self.sink is None:
            return bool(self.sink_path)
        is_ahead = self.sink.skips_to is not None and self.sink.skips_to == self.sink.newest
        return self.is_active and (is_ahead or self.shares_sink or bool(self.sink.trouble))

    def began_wall(self, at: float, wall: float | None) -> float | None:
        """Unix seconds when the run was first seen; a little earlier, because it began before."""
        return None if wall is None else wall - (at - self.seen_at) - CLOCK_SET_SECONDS

    def may_be_new(self, commits: FileTimes) -> bool:
        """Whether it may have begun this checkpoint, and where is not known yet."""
        return self.needs_begin and max(commits, default=0) < FEW_BATCHES

    def begin(self, point: StartingPoint, begins: dict[int, dict[str, int]], at: float) -> None:
        """Keep the first starting point, and add where a new checkpoint begins once it shows that.

        Without a plan, a source may not have written it yet.
        """
        if self.start is None:
            self.start = point
            self.needs_start = False
        if self.needs_begin:
            self.start = replace(self.start, begins=begins)
            self.needs_begin = point.committed is None and point.unfinished is None
            self.begin_at = at + max(READ_EVERY_SECONDS, (at - self._began_at) / 4)

    def warn(self) -> None:
        """Log once that a log which decides something cannot be read, until it can."""
        if self.decides and self.trouble and not self._warned:
            name = base_label(self.facts.name, self.facts.query_id)
            log.warning("querypulse: cannot read the checkpoint of %s: %s", name, self.trouble)
        self._warned = self.decides and bool(self.trouble)


def _begins(checkpoint: SparkCheckpoint) -> dict[int, dict[str, int]]:
    """Where a new checkpoint begins; empty if its storage does not say, which decides little."""
    try:
        return checkpoint.begins()
    except StorageError:
        return {}


def _has_starting_point(facts: RunFacts) -> bool:
    """Whether it plans a batch before it runs it, and writes that to its log at once."""
    plans_first = not (facts.trigger.is_continuous or facts.trigger.is_real_time)
    return bool(facts.checkpoint) and plans_first and not facts.async_progress


_FILE_SINK = re.compile(r"FileSink\[(.+)\]", re.DOTALL)


def _file_sink(facts: RunFacts) -> str:
    """The folder that Spark's file sink writes; empty for another sink."""
    described = _FILE_SINK.fullmatch(facts.sink)
    return described.group(1) if described is not None else ""


def _shared_sinks(runs: dict[str, _Run]) -> set[str]:
    """The folders that several active runs write."""
    counts = Counter(run.sink_path for run in runs.values() if run.sink_path and run.is_active)
    return {path for path, count in counts.items() if count > 1}


# -- checkpoint place -------------------------------------------------------------------------


_OF_THE_MACHINE = re.compile(r"file:/+(tmp|var/tmp|dev/shm)(?:/|$)")
TEMPORARY = "temporary: no checkpointLocation is set, so each start of the query loses its progress"


def checkpoint_problem(checkpoint: str) -> str:
    """Why a checkpoint (``resolvedCheckpointRoot``) may be lost; empty when nothing is wrong."""
    if is_temporary(checkpoint):
        return TEMPORARY
    folder = _OF_THE_MACHINE.match(checkpoint)
    if folder is None:
        return ""
    return f"under /{folder.group(1)} on the driver's machine: another machine cannot read it"
