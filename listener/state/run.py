"""The current run of a query: nothing of it survives a restart. Times are monotonic seconds."""

from __future__ import annotations

from enum import Enum
from math import inf

import msgspec
from msgspec.structs import replace

from ..commit_log import LoggedBatches, SinkLog
from ..events import Progress, Started
from ..failure import Failure
from ..foresight.phases import Phase
from ..offsets import behind
from ..probe_report import (
    JobActivity,
    Moves,
    ProbedRun,
    RunFacts,
    SessionEnd,
    Trigger,
    parse_trigger,
)


class Outcome(str, Enum):
    """How a run ended."""

    FAILED = "failed"
    STOPPED = "stopped"
    COMPLETED = "completed"


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The end of a run and the signal that showed it first."""

    at: float
    outcome: Outcome
    signal: str
    failure: Failure | None = None


# -- in flight --------------------------------------------------------------------------------


UNSEEN_SECONDS = 5.0
"""Polls further apart than this have a pause between them."""


class InFlight(msgspec.Struct, frozen=True, gc=False):
    """What a busy run is doing: a batch, or (``batch_id`` None) planning one.

    ``moved_at`` is when its tasks, or the thread that runs it, last made progress.
    """

    since: float
    moved_at: float
    batch_id: int | None
    equipped_since: float
    """``since``, later by all waits for executors or slots."""
    worked_since: float
    """``moved_at``, later by the waits for executors or slots that have ended since."""
    moves: Moves = Moves.TASKS
    """What made the last progress."""
    jvm_cpu_seconds: float | None = None
    """The CPU time that the run's thread in the JVM had used by then."""
    tried_at: float | None = None
    """When that thread last used too little CPU time for work, such as to try again for a lock."""
    delayed_at: float | None = None
    """When a task of it last ran, or its jobs last waited for executors or slots."""
    waits_since: float | None = None
    """Since when its jobs wait for executors or slots, if they do."""
    holder: str = ""
    held_since: float = inf
    """Since when ``holder`` has held most of the slots that its jobs wait for."""
    jobs_before: int | None = None
    """How many jobs of the query had started when this first took long; only counted ones."""
    phase: Phase | None = None
    """The phase that its thread is in, where a poll shows that ..."""
    phase_since: float = inf
    """... and since when polls have shown it."""


class Delay(str, Enum):
    """What Spark does with the jobs of a batch, or waits for."""

    TASK_RUNNING = "task_running"
    NO_EXECUTORS = "no_executors"
    WAITING_FOR_SLOTS = "waiting_for_slots"


def delay_of(work: JobActivity | None) -> Delay | None:
    """The delay that the newest job poll shows; None without an active job or without data.

    When the slots are unknown, jobs without a running task prove nothing.
    """
    if work is None or not work.jobs.jobs_active:
        return None
    if work.jobs.tasks_active:
        return Delay.TASK_RUNNING
    if work.slots is None:
        return None
    if not work.slots.total:
        return Delay.NO_EXECUTORS
    return Delay.WAITING_FOR_SLOTS if work.slots.taken >= work.slots.total else None


def holder_of_slots(work: JobActivity | None) -> str:
    """The id of the query that holds most of the slots that jobs wait for; empty without a wait."""
    if work is None or work.slots is None or delay_of(work) is not Delay.WAITING_FOR_SLOTS:
        return ""
    return work.slots.holder


def follow_in_flight(run: Run, polled: ProbedRun, at: float) -> InFlight | None:
    """The run's activity at a poll: the same as before, a new one, or none."""
    if not (polled.planning or polled.processing):
        return None
    batch_id = polled.batch_id if polled.processing else None
    flight = run.in_flight
    if flight is None or flight.batch_id != batch_id:
        return InFlight(
            since=at, moved_at=at, batch_id=batch_id, equipped_since=at, worked_since=at
        )
    flight = _after_pause(flight, run.probed_at, at)
    work = polled.work
    if work is None:
        return flight
    last_work = run.probed.work if run.probed is not None else None
    flight = _moved(flight, last_work, work, at)
    flight = _waiting(flight, last_work, work, run.probed_at or at, at)
    flight = _delayed(flight, work, at)
    if flight.phase is not work.phase:
        flight = replace(flight, phase=work.phase, phase_since=at)
    if flight.jobs_before is None and work.counted:
        flight = replace(flight, jobs_before=work.own.jobs_started)
    return flight


def _after_pause(flight: InFlight, polled_at: float | None, at: float) -> InFlight:
    """Move ``delayed_at`` past a pause of the JVM: nothing is known about that time."""
    if flight.delayed_at is None or polled_at is None or at - polled_at <= UNSEEN_SECONDS:
        return flight
    return replace(flight, delayed_at=flight.delayed_at + at - polled_at)


def _moved(flight: InFlight, before: JobActivity | None, work: JobActivity, at: float) -> InFlight:
    moves = work.moved_since(before) if before is not None else None
    if moves is None and work.works_in_jvm(flight.jvm_cpu_seconds, at - flight.moved_at):
        moves = Moves.DRIVER
    if moves is not None:
        return replace(
            flight,
            moved_at=at,
            moves=moves,
            jvm_cpu_seconds=work.jvm_cpu_seconds,
            worked_since=at,
            waits_since=None,
        )
    if before is not None and work.works_in_jvm(before.jvm_cpu_seconds, 0.0):
        flight = replace(flight, tried_at=at)
    if flight.jvm_cpu_seconds is None:
        return replace(flight, jvm_cpu_seconds=work.jvm_cpu_seconds)
    return flight


WAITS = (Delay.NO_EXECUTORS, Delay.WAITING_FOR_SLOTS)


def _waiting(
    flight: InFlight, before: JobActivity | None, work: JobActivity, polled_at: float, at: float
) -> InFlight:
    """Move its clocks past what it has waited, for executors or slots, from poll to poll.

    Where the first poll of its jobs shows a wait, that may be as old as the batch.
    """
    delay = delay_of(work)
    is_first = before is None and flight.delayed_at is None
    if delay in WAITS and is_first:
        flight = replace(flight, equipped_since=at)
    elif delay_of(before) in WAITS:
        flight = replace(flight, equipped_since=flight.equipped_since + at - polled_at)
    if delay in WAITS:
        began_at = flight.worked_since if is_first else at
        return flight if flight.waits_since is not None else replace(flight, waits_since=began_at)
    if flight.waits_since is None:
        return flight
    worked_since = flight.worked_since + at - flight.waits_since
    return replace(flight, worked_since=worked_since, waits_since=None)


def _delayed(flight: InFlight, work: JobActivity, at: float) -> InFlight:
    delay = delay_of(work)
    holder = holder_of_slots(work)
    if holder != flight.holder:
        flight = replace(flight, holder=holder, held_since=at if holder else inf)
    return flight if delay is None else replace(flight, delayed_at=at)


# -- run --------------------------------------------------------------------------------------


class UnreportedCommit(msgspec.Struct, frozen=True, gc=False):
    """A commit that the probe or the commit log has shown and no event has reported yet."""

    since: float
    batch_id: int


class SkippedBatches(msgspec.Struct, frozen=True, gc=False):
    """Batches that the sink does not write, because its own log has their ids already.

    ``since`` is when a reading showed it; ``until`` is the last such batch, and ``first`` the first
    one, where that is not the first batch of the run.
    """

    since: float
    until: int
    first: int | None = None


class LogBehind(msgspec.Struct, frozen=True, gc=False):
    """In ``polls`` readings of the commit log batches had advanced but the log had not."""

    since: float
    polls: int
    batch_id: int


class Run(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One run of a query, as all signals show it."""

    run_id: str
    started_at: float
    start: Started | None = None
    """Its start event, if that has arrived."""
    facts: RunFacts | None = None
    last_event_at: float | None = None
    last_commit_at: float | None = None
    last_commit_batch: int | None = None
    """Its newest commit; lower than that of the run before if the checkpoint was restored."""
    first_batch: int | None = None
    """The first commit that was seen."""
    last_idle_at: float | None = None
    last_input_at: float | None = None
    """When it last read rows, as far as known."""
    progress: Progress | None = None
    progress_at: float | None = None
    """When ``progress`` arrived."""
    probed: ProbedRun | None = None
    probed_at: float | None = None
    in_flight: InFlight | None = None
    stopping_since: float | None = None
    """When a poll first showed that it was stopped and still runs."""
    ended: Ended | None = None
    vanished_at: float | None = None
    """When the probe first no longer found the run, while no signal has shown its end."""
    stop_expected: bool = False
    """Whether a planned stop of it was announced."""
    stop_expected_until: float = inf
    """When that announcement ends, unless the run has ended by then."""
    taken_by: str = ""
    """The label of the query that was started on the checkpoint of this one, so that Spark stopped
    this run (``spark.sql.streaming.stopActiveRunOnRestart``)."""
    session_end: SessionEnd | None = None
    """How its session of Spark Connect ended, and with that the run; None as far as is known."""
    goes_on: bool = False
    """Whether its first batch followed the last one of ``Checkpoint.id_before``."""
    reported_elsewhere: bool = False
    """Whether another process, which has closed since, reported its end."""
    unreported: UnreportedCommit | None = None
    logged: LoggedBatches | None = None
    """The newest reading of its checkpoint."""
    logged_at: float | None = None
    log_behind: LogBehind | None = None
    sink_log: SinkLog | None = None
    """The newest reading of the log of its sink, if that has one."""
    skipped: SkippedBatches | None = None
    source_trouble: str = ""
    """Why some sources did not answer the last poll."""

    @property
    def alive(self) -> bool:
        """Whether it has neither ended nor vanished."""
        return self.ended is None and self.vanished_at is None

    @property
    def gone_at(self) -> float | None:
        """When it ended or vanished; None while it is active."""
        return self.ended.at if self.ended is not None else self.vanished_at

    @property
    def gone_or_started_at(self) -> float:
        """When it ended or vanished; when it started while it is active."""
        return self.started_at if self.gone_at is None else self.gone_at

    @property
    def last_activity_at(self) -> float:
        """The last commit or idle trigger, else the start."""
        at = self.started_at
        return max(at, self.last_commit_at or at, self.last_idle_at or at)

    @property
    def activity_seen(self) -> bool:
        """Whether it has committed or been idle."""
        return self.last_commit_at is not None or self.last_idle_at is not None

    @property
    def has_batch(self) -> bool:
        """Whether any signal has shown a batch of it."""
        polled = self.probed is not None and self.probed.has_batch_id
        return polled or self.last_commit_batch is not None

    @property
    def has_completed(self) -> bool:
        """Whether it ended by itself, without a failure."""
        return self.ended is not None and self.ended.outcome is Outcome.COMPLETED

    @property
    def completed_at(self) -> float | None:
        """When it had done all that there was: Spark ends a run that was stopped in the same way.

        None also if a batch of it was in flight and has not committed.
        """
        was_stopped = self.stop_expected or self.stopping_since is not None
        if self.ended is None or not self.has_completed or was_stopped:
            return None
        flying = None if self.in_flight is None else self.in_flight.batch_id
        done = self.last_commit_batch
        is_cut_off = flying is not None and (done is None or flying > done)
        return None if is_cut_off else self.ended.at

    @property
    def is_done_with(self) -> bool:
        """Whether it completed or was stopped on purpose, so that no next run is expected."""
        was_stopped = self.ended is not None and self.ended.outcome is Outcome.STOPPED
        return self.has_completed or (was_stopped and self.stop_expected)

    @property
    def holds_back(self) -> bool:
        """Whether the last trigger left a source's data unread (``minOffsetsPerTrigger``)."""
        probed = self.probed
        if probed is None or probed.idle_progress is None or not probed.waiting:
            return False
        return any(behind(source.end, source.latest) for source in probed.idle_progress.sources)

    @property
    def trigger(self) -> Trigger | None:
        """Its trigger; None if unknown."""
        if self.facts is not None and self.facts.trigger.is_known:
            return self.facts.trigger
        return parse_trigger(self.start.trigger) if self.start and self.start.trigger else None

    @property
    def loop_began(self) -> float | None:
        """When it began, if its trigger ends by itself."""
        trigger = self.trigger
        return self.started_at if trigger is not None and trigger.ends_by_itself else None

    @property
    def completed_loop(self) -> tuple[float, float] | None:
        """When it began and ended, if it completed, as the runs of a loop do."""
        if self.ended is None or self.ended.outcome is not Outcome.COMPLETED:
            return None
        return None if self.loop_began is None else (self.loop_began, self.ended.at)

    @property
    def session(self) -> str:
        """The ``sessionUUID`` of the session that started it; empty if unknown."""
        facts = self.facts.session if self.facts is not None else ""
        return facts or (self.start.session if self.start is not None else "")

    @property
    def checkpoint_folder(self) -> str:
        """The folder of its checkpoint; empty if unknown."""
        described = self.facts or self.start
        return described.checkpoint if described is not None else ""
