"""Why is it slow? The likely cause is what explains most of the time beyond the usual.

Two things are compared with the usual: the phases of a batch, which are measured, and what its
tasks did, of which only sums are known. Where neither explains most of it, there is no cause: more
data, a slow sink and slow code look alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec
from msgspec.structs import replace

from ...listener.foresight.phases import (
    LEAST_TASKS,
    SLOW,
    BatchPhases,
    Phase,
    Usual,
    part,
    skew_seconds,
    usual_before,
)
from ...listener.foresight.tasks import BatchTasks, QueryTasks, StageSpread
from ...listener.probe_report import LongTask
from ...listener.state.run import Delay, InFlight, delay_of, holder_of_slots
from ..evidence import LikelyCause, SlowCause, Slowness
from ..facts import (
    BatchesGrow,
    BatchSlow,
    Facts,
    LagRises,
    RetentionUsed,
    Retrying,
    TaskRunning,
    WaitedTooLong,
)
from .context import RuleContext

ABOUT_PACE = (BatchSlow, BatchesGrow, LagRises, WaitedTooLong, RetentionUsed, TaskRunning)
"""Who is notified of these asks why it is slow."""

MOST = 0.5
"""A cause explains at least this part of the time beyond the usual."""
LEAST_WAITED_SECONDS = 1.0
"""A loaded driver launches tasks tenths of a second after it submits them, with slots free."""
USUAL_COLLECTION = 0.1
"""A healthy JVM spends less of its time in garbage collection."""
CLOSE_SECONDS = 1.0
"""A reading of the heap so close to a batch is one of its beginning, or of its end."""
MUCH_SPILLED = 3.0
"""Tasks spill if they spill this many times as much as usual."""
LEAST_SPILLED_BYTES = 1e6

_PHASES = {
    SlowCause.SOURCE_LISTING: (Phase.LATEST_OFFSET, Phase.GET_BATCH),
    SlowCause.PLANNING: (Phase.PLANNING,),
    SlowCause.SLOW_COMMIT: (Phase.WAL_COMMIT, Phase.COMMIT_OFFSETS),
}
"""The causes that are phases of their own."""


class SlowBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a batch that takes ``seconds``, longer than usual."""

    batch_id: int | None
    seconds: float
    usual: Usual
    usual_seconds: float
    phase_seconds: dict[Phase, float]
    """Of a batch in flight: only the phase that it is in, since that was first seen."""
    rows: int | None = None
    tasks: BatchTasks = BatchTasks(0)
    longest: LongTask | None = None
    """Of the tasks that still run."""
    waits_seconds: float = 0.0
    """For how long it has been waiting for slots."""
    holder: str | None = None
    state_commit_seconds: float = 0.0
    """Of all tasks together."""
    driver_collects: float = 0.0
    """The part of its time that the driver spends in garbage collection."""

    @property
    def excess_seconds(self) -> float:
        """How much longer than usual it takes."""
        return self.seconds - self.usual_seconds

    @property
    def add_batch_seconds(self) -> float:
        """How long its tasks have had; in flight, all of it may be ``addBatch``."""
        return self.phase_seconds.get(Phase.ADD_BATCH, self.seconds)


def likely_cause(slow: SlowBatch) -> LikelyCause | None:
    """Return what explains most of the time beyond the usual; None if nothing does."""
    causes = (*_in_phases(slow), *_in_slots(slow), *_in_tasks(slow), *_in_driver(slow))
    worst = max(causes, key=lambda cause: cause.explained_seconds, default=None)
    if worst is None or worst.explained_seconds < MOST * slow.excess_seconds:
        return None
    return worst


def _in_phases(slow: SlowBatch) -> Iterator[LikelyCause]:
    for cause, phases in _PHASES.items():
        usual = slow.usual.of(*phases)
        seconds = sum(slow.phase_seconds.get(phase, 0.0) for phase in phases)
        yield LikelyCause(cause=cause, explained_seconds=seconds - usual, usual_phase_seconds=usual)


def _in_slots(slow: SlowBatch) -> Iterator[LikelyCause]:
    seconds = max(slow.waits_seconds, slow.tasks.waited_seconds)
    if seconds < LEAST_WAITED_SECONDS:
        return
    seconds -= slow.usual.part(lambda batch: batch.waited_part) * slow.add_batch_seconds
    yield LikelyCause(
        cause=SlowCause.WAITING_FOR_SLOTS, explained_seconds=seconds, holder=slow.holder
    )


def _in_tasks(slow: SlowBatch) -> Iterator[LikelyCause]:
    spread = _widest(slow)
    if spread is not None:
        usual_seconds = slow.usual.part(lambda batch: batch.skew_part) * slow.add_batch_seconds
        seconds = skew_seconds(spread) - usual_seconds
        yield LikelyCause(cause=SlowCause.SKEW, explained_seconds=seconds, spread=spread)
    run_seconds = slow.tasks.sums.run_seconds
    if not run_seconds:
        return
    for cause, seconds, usual_share in _seconds_of_tasks(slow):
        share = part(seconds, run_seconds)
        explained = (share - usual_share) * min(slow.add_batch_seconds, run_seconds)
        spilled = slow.tasks.sums.spilled_bytes if cause is SlowCause.SPILL else 0
        yield LikelyCause(
            cause=cause, explained_seconds=explained, of_tasks=share, spilled_bytes=spilled
        )


def _seconds_of_tasks(slow: SlowBatch) -> Iterator[tuple[SlowCause, float, float]]:
    """For how long tasks did something else than their work, all together, and its usual part."""
    sums = slow.tasks.sums
    collects = max(USUAL_COLLECTION, slow.usual.part(lambda batch: batch.gc_part))
    waits = slow.usual.part(lambda batch: batch.shuffle_wait_part)
    commits = slow.usual.part(lambda batch: batch.state_commit_part)
    yield SlowCause.GARBAGE_COLLECTION, sums.gc_seconds, collects
    yield SlowCause.SHUFFLE_WAIT, sums.shuffle_wait_seconds, waits
    yield SlowCause.STATE_COMMIT, slow.state_commit_seconds, commits
    if _spills(slow):
        yield SlowCause.SPILL, _beyond_usual_work(slow), 0.0


def _spills(slow: SlowBatch) -> bool:
    """Whether its tasks spill much more than usual."""
    usual = slow.usual.spilled_bytes
    least = LEAST_SPILLED_BYTES if usual is None else max(LEAST_SPILLED_BYTES, MUCH_SPILLED * usual)
    return usual is not None and slow.tasks.sums.spilled_bytes >= least


def _beyond_usual_work(slow: SlowBatch) -> float:
    """Seconds of tasks beyond the usual for so much data, with the garbage that spills make."""
    sums = slow.tasks.sums
    per_byte = slow.usual.seconds_per_byte
    if per_byte is None:
        return 0.0
    usual = per_byte * (sums.shuffle_read_bytes + sums.shuffle_written_bytes)
    return max(0.0, sums.run_seconds - usual - sums.shuffle_wait_seconds)


def _widest(slow: SlowBatch) -> StageSpread | None:
    """Of the task that takes longest, also if it still runs."""
    spread = slow.tasks.spread
    if spread is not None and spread.tasks < LEAST_TASKS:
        spread = None
    task = slow.longest
    # Where others run as long, the sink or the code is slow, not one task.
    if task is None or task.usual_seconds is None or task.as_long:
        return spread
    running = StageSpread(
        stage=task.stage,
        tasks=LEAST_TASKS,
        median_seconds=task.usual_seconds,
        longest_seconds=task.seconds,
        partition=task.partition,
        host=task.host,
    )
    if spread is None or spread.longest_seconds < running.longest_seconds:
        return running
    return spread


def _in_driver(slow: SlowBatch) -> Iterator[LikelyCause]:
    seconds = slow.driver_collects * slow.seconds - USUAL_COLLECTION * slow.usual_seconds
    yield LikelyCause(
        cause=SlowCause.GARBAGE_COLLECTION, explained_seconds=seconds, is_in_driver=True
    )


# -- from a query -----------------------------------------------------------------------------


def why_slow(context: RuleContext, facts: Facts) -> Slowness | None:
    """Return why batches are slow, for an alert to which that matters and that does not say it."""
    if not isinstance(facts, ABOUT_PACE) or isinstance(facts, Retrying):
        return None
    if facts.lost is not None and facts.lost.are_a_cause:
        return None
    slow = slowness(context)
    cause = None if slow is None else slow.cause
    if isinstance(facts, TaskRunning) and (cause is None or cause.cause is SlowCause.SKEW):
        return None
    return slow


def slowness(context: RuleContext) -> Slowness | None:
    """Return the batch that takes longer than usual, and its likely cause.

    That is the newest one that committed, or the batch in flight, once that has taken longer: one
    that has just begun shows nothing.
    """
    if not context.is_running:
        return None
    in_flight = _batch_in_flight(context)
    committed = _committed_batches(context)
    longest = max((in_flight, *committed[:1]), key=_excess_seconds)
    if longest is None or longest is in_flight:
        return None if longest is None else _answer(longest, likely_cause(longest))
    causes = [likely_cause(slow) for slow in committed]
    first = causes[0]
    is_disputed = any(other and first and other.cause is not first.cause for other in causes)
    return _answer(committed[0], None if is_disputed else first)


def _excess_seconds(slow: SlowBatch | None) -> float:
    return 0.0 if slow is None else slow.excess_seconds


def _answer(slow: SlowBatch, cause: LikelyCause | None) -> Slowness:
    return Slowness(
        batch_id=slow.batch_id,
        seconds=slow.seconds,
        usual_seconds=slow.usual_seconds,
        rows=slow.rows,
        usual_rows=slow.usual.rows,
        cause=cause,
    )


def _batch_in_flight(context: RuleContext) -> SlowBatch | None:
    flight = context.query.run.in_flight
    if flight is None or context.probe_is_stale:
        return None
    seconds = _lasted(context, flight)
    usual = usual_before(context.query.checkpoint.batches, seconds)
    if usual is None:
        return None
    # What Spark asks a source for is over when the batch begins.
    listing = usual.of(Phase.LATEST_OFFSET)
    usual_seconds = listing if flight.batch_id is None else max(0.0, usual.seconds - listing)
    work = context.work
    slow = SlowBatch(
        batch_id=flight.batch_id,
        seconds=seconds,
        usual=usual,
        usual_seconds=usual_seconds,
        phase_seconds=_phase_in_flight(context, flight),
        tasks=_tasks_of(context, flight.batch_id),
        longest=None if work is None else work.own.longest,
        driver_collects=_driver_collects(context, context.now, seconds),
    )
    return _with_wait(context, flight, slow)


def _lasted(context: RuleContext, flight: InFlight) -> float:
    planning_since = context.query.run.last_activity_at if flight.batch_id is None else flight.since
    return context.watched_since(max(flight.since, planning_since))


def _phase_in_flight(context: RuleContext, flight: InFlight) -> dict[Phase, float]:
    if flight.batch_id is None:
        return {Phase.LATEST_OFFSET: _lasted(context, flight)}
    if flight.phase is None:
        return {}
    return {flight.phase: context.watched_since(flight.phase_since)}


def _with_wait(context: RuleContext, flight: InFlight, slow: SlowBatch) -> SlowBatch:
    if flight.waits_since is None or delay_of(context.work) is not Delay.WAITING_FOR_SLOTS:
        return slow
    holder = holder_of_slots(context.work)
    others = (query for query in context.snapshot.queries if query.run.alive)
    return replace(
        slow,
        waits_seconds=context.watched_since(flight.waits_since),
        holder=next((query.label for query in others if query.query_id == holder), None),
    )


def _committed_batches(context: RuleContext) -> list[SlowBatch]:
    """The newest batch, if it is slow, and the one before, if that took about as long."""
    batches = context.query.checkpoint.batches
    newest = list(islice(reversed(batches.values()), 2))
    usual = usual_before(batches, newest[0].seconds) if newest else None
    if usual is None:
        return []
    least = max(SLOW * usual.seconds, newest[0].seconds / SLOW)
    slow = [batch for batch in newest if batch.seconds >= least]
    return [_committed(context, batch, usual) for batch in slow]


def _committed(context: RuleContext, batch: BatchPhases, usual: Usual) -> SlowBatch:
    progress = context.query.run.progress
    is_newest = progress is not None and progress.batch_id == batch.batch_id
    ended_at = context.query.run.progress_at if is_newest else None
    return SlowBatch(
        batch_id=batch.batch_id,
        seconds=batch.seconds,
        usual=usual,
        usual_seconds=usual.seconds,
        phase_seconds={phase: batch.of(phase) for phase in Phase},
        rows=batch.rows,
        tasks=_tasks_of(context, batch.batch_id),
        state_commit_seconds=batch.state_commit_seconds,
        driver_collects=_driver_collects(context, ended_at, batch.seconds),
    )


def _driver_collects(context: RuleContext, until: float | None, seconds: float) -> float:
    """The part of the ``seconds`` before that the driver surely spent in collections.

    The heap is read rarely: what was collected between a reading before and one within is unknown.
    """
    if until is None:
        return 0.0
    since = until - seconds - CLOSE_SECONDS
    points = context.snapshot.usage.gc_seconds.points
    within = [collected for at, collected in points if since <= at <= until + CLOSE_SECONDS]
    return (within[-1] - within[0]) / seconds if within else 0.0


def _tasks_of(context: RuleContext, batch_id: int | None) -> BatchTasks:
    probed = context.query.run.probed
    tasks = QueryTasks() if probed is None or probed.tasks is None else probed.tasks
    return next((batch for batch in tasks.batches if batch.batch_id == batch_id), BatchTasks(0))
