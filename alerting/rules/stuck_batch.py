"""The batch in flight: how long it has run, what moves or holds it, and when it is critical."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ...listener.probe_report import UNOWNED, Moves
from ...listener.state.query import Query
from ...listener.state.run import Delay, InFlight, delay_of, holder_of_slots
from ...listener.state.snapshot import Snapshot
from ..evidence import After, CriticalAfter, Evidence
from ..facts import (
    LOSSES_OF_A_CAUSE,
    BatchHung,
    BatchSlow,
    ExecutorsLost,
    Facts,
    Flight,
    Losses,
    NeverCommitted,
    NoExecutors,
    Place,
    Retrying,
    SchedulerStopped,
    Slots,
    SourceHung,
    TaskRunning,
    Unfinished,
    WaitingForSlots,
)
from ..finding import Severity
from .context import RuleContext
from .evidence import collect, unfinished

BLOCKED_SECONDS = 180.0
"""A batch may wait this long for something outside, such as a lock, a request or a remote job."""
AUTOSCALE_SECONDS = 360.0
"""A cluster that scales by itself brings executors within three to six minutes."""
SAMPLE_SECONDS = 10.0
"""Two batches of one moment may be seen by different polls."""
RETRIES_AT_LEAST = 10
RETRIES_FACTOR = 5.0
"""A batch retries if it runs this many times the jobs of the query's other batches."""


def lasted(context: RuleContext, flight: InFlight) -> float:
    """Seconds for which the batch has been in flight, or been planned since the last activity."""
    planning_since = context.query.run.last_activity_at if flight.batch_id is None else flight.since
    return context.watched_since(max(flight.since, planning_since))


def still(context: RuleContext, flight: InFlight) -> float:
    """Seconds since a task of the batch finished, a job of it began, or its thread worked.

    Once it has executors and slots, the wait for them counts no more.
    """
    seconds = context.watched_since(flight.moved_at)
    if seconds > AUTOSCALE_SECONDS and loses_executors(context, flight):
        return seconds
    return context.watched_since(flight.worked_since)


def is_slow(context: RuleContext, flight: InFlight) -> bool:
    """Whether the batch has been in flight for longer than its window, and waits for no slot.

    The time in which it had no executor or slot does not count, nor does any that it has waited
    while an autoscaler may still bring executors.
    """
    equipped = min(lasted(context, flight), context.watched_since(flight.equipped_since))
    waits_for_slot = delay_of(context.work) is Delay.WAITING_FOR_SLOTS
    is_long = not waits_for_slot and equipped > context.batch_window.seconds
    is_excused = may_get_executors(context, flight)
    return is_long or (is_slow_for_long(context, flight) and not is_excused)


def is_delayed(context: RuleContext) -> bool:
    """Whether Spark runs a task of the batch, or waits for executors or slots."""
    return delay_of(context.work) is not None


def may_get_executors(context: RuleContext, flight: InFlight) -> bool:
    """Whether the batch moved while it had executors, and an autoscaler may still bring some."""
    if delay_of(context.work) is not Delay.NO_EXECUTORS:
        return False
    seconds = still(context, flight)
    worked = seconds - _waited(context, flight)
    return worked <= context.batch_window.seconds and seconds <= AUTOSCALE_SECONDS


def _waited(context: RuleContext, flight: InFlight) -> float:
    return 0.0 if flight.waits_since is None else context.watched_since(flight.waits_since)


def moved_lately(context: RuleContext, flight: InFlight) -> bool:
    """Whether the batch has made progress within the window."""
    return still(context, flight) <= context.batch_window.seconds


def is_slow_for_long(context: RuleContext, flight: InFlight) -> bool:
    """Whether the batch is critical by its time in flight alone."""
    return lasted(context, flight) > slow_limit(context)


def is_critical_by_time(context: RuleContext, flight: InFlight) -> bool:
    """Whether the batch has worked, or repeated its jobs, for too long."""
    limit = _retry_limit(context) if is_retrying(context, flight) else slow_limit(context)
    return lasted(context, flight) > limit


def is_retrying(context: RuleContext, flight: InFlight) -> bool:
    """Whether the batch repeats its jobs, which proves that it does not advance.

    The first batch of a run proves nothing: what arrived while the query was down may take more
    jobs than its usual batches.
    """
    return context.query.run.last_commit_at is not None and retries(context, flight) is not None


def _retry_limit(context: RuleContext) -> float:
    """Seconds after which a batch in flight that repeats its jobs is critical."""
    limit = max(context.batch_window.seconds, context.limits.stall_critical_seconds)
    return min(limit, slow_limit(context))


def not_committed(context: RuleContext, flight: InFlight) -> Unfinished | None:
    """Return the batch if no process has committed it for longer than the critical time.

    A planned stop in the middle of a batch leaves the same files as a crash. So an old plan counts
    only after the run has had its window, which follows the batches in its checkpoint.
    """
    batch = unfinished(context)
    if batch is None or flight.batch_id != batch.batch_id:
        return None
    is_old = batch.age_seconds > slow_limit(context)
    return batch if is_old and lasted(context, flight) > context.batch_window.seconds else None


def stall_severity(context: RuleContext, flight: InFlight) -> Severity:
    """How urgent a batch without progress is, by what holds it.

    Critical after a window in which nothing moved, and later if it may wait for something outside,
    if nothing shows what moves, or if there was a delay. What waits for another query's slots is a
    matter of that one.
    """
    window, limits = context.batch_window.seconds, context.limits
    nothing_since = max(flight.moved_at, flight.delayed_at or flight.moved_at)
    nothing = context.watched_since(nothing_since)
    if nothing > window:
        return Severity.CRITICAL if nothing > _blocked_limit(context, flight) else Severity.WARNING
    if holder_of(context) is not None:
        is_victim = not is_slow_for_long(context, flight) or pages_holder(context, flight)
        return Severity.WARNING if is_victim else Severity.CRITICAL
    is_lossy = loses_executors(context, flight)
    seconds = context.watched_since(flight.moved_at) if is_lossy else still(context, flight)
    is_long = seconds > max(window, limits.stall_critical_seconds)
    is_critical = is_long or is_critical_by_time(context, flight)
    return Severity.CRITICAL if is_critical else Severity.WARNING


def _blocked_limit(context: RuleContext, flight: InFlight) -> float:
    """Seconds after which a batch is critical that shows neither progress nor a delay.

    Where nothing counts its jobs and CPU time (Spark Connect), its tasks may run all the time.
    """
    least = BLOCKED_SECONDS if may_wait_outside(context, flight) else 0.0
    if flight.batch_id is not None and counts_nothing(context):
        least = context.limits.stall_critical_seconds
    return max(context.batch_window.seconds, least)


def counts_nothing(context: RuleContext) -> bool:
    """Whether nothing counts the jobs of the run, as on Spark Connect."""
    probe = context.snapshot.probe
    return context.work is None and probe is not None and bool(probe.listener.missing)


def slow_limit(context: RuleContext) -> float:
    """Seconds after which a batch in flight is critical, even if it makes progress."""
    return max(context.batch_window.seconds, context.limits.slow_critical_seconds)


def holder_of(context: RuleContext) -> Query | None:
    """The other query that holds most of the slots that the batch waits for."""
    holder = _query_of(context, holder_of_slots(context.work))
    return holder if holder is not None and holder.run.alive else None


def may_get_slots(context: RuleContext) -> bool:
    """Whether the query that held its slots has just ended, so that they are about to be free."""
    holder = _query_of(context, holder_of_slots(context.work))
    gone_at = None if holder is None else holder.run.gone_at
    return gone_at is not None and context.watched_since(gone_at) <= context.batch_window.seconds


def pages_holder(context: RuleContext, flight: InFlight) -> bool:
    """Whether this one has waited too long for another query, which must be paged for.

    One batch of the holder must have been in flight while this one stood still.
    """
    holder = holder_of(context)
    held = holder.run.in_flight if holder is not None else None
    if held is None or not is_slow_for_long(context, flight):
        return False
    return held.since <= flight.moved_at + SAMPLE_SECONDS


def waiting_by_holder(snapshot: Snapshot) -> dict[str, set[str]]:
    """By the label of each query that holds most slots: who waits for them now."""
    alive = [query for query in snapshot.queries if query.run.alive]
    labels = {query.query_id: query.label for query in alive}
    waiting: dict[str, set[str]] = {}
    for query in alive:
        work = None if query.run.probed is None else query.run.probed.work
        holder = labels.get(holder_of_slots(work))
        flight = query.run.in_flight
        is_steady = flight is not None and snapshot.at - flight.held_since >= SAMPLE_SECONDS
        if holder is not None and is_steady:
            waiting.setdefault(holder, set()).add(query.label)
    return waiting


SCHEDULER_BLOCKED_SECONDS = 30.0
"""Its event loop handles an event within milliseconds. In a short window, half of that counts."""


def scheduler_stopped(context: RuleContext, flight: Flight) -> SchedulerStopped | None:
    """Return why Spark starts and ends no job of any query; None while its scheduler works."""
    probe = context.snapshot.probe
    loop = None if probe is None or context.probe_is_stale else probe.scheduler
    if loop is None:
        return None
    if not loop.alive:
        return SchedulerStopped(flight=flight)
    if loop.waits_seconds > min(SCHEDULER_BLOCKED_SECONDS, context.batch_window.seconds / 2):
        return SchedulerStopped(flight=flight, waits_seconds=loop.waits_seconds)
    return None


def python_line(context: RuleContext) -> str:
    """The line of the job's own code that the batch is in, while no job of it is active."""
    work = context.work
    return "" if work is None or work.own.jobs_active else work.python_line


def tries_again(context: RuleContext, flight: InFlight) -> bool:
    """Whether the thread of a batch that does not move has used CPU time within the window.

    It may try for ever to get a lock, or poll a remote job that works: both look the same.
    """
    tried_at = flight.tried_at
    return tried_at is not None and context.watched_since(tried_at) <= context.batch_window.seconds


def may_wait_outside(context: RuleContext, flight: InFlight) -> bool:
    """Whether a batch that does not move may wait for something outside of Spark."""
    return bool(python_line(context)) or tries_again(context, flight)


def thread_line(context: RuleContext) -> str:
    """Return where the thread that runs the batch is: in Python, else in the JVM, else empty."""
    work = context.work
    if work is None:
        return ""
    return work.python_line or next(iter(work.jvm_stack), "")


def in_flight(context: RuleContext, flight: InFlight) -> Flight:
    """Return the batch in flight, and for how long it has been."""
    return Flight(flight.batch_id, lasted(context, flight))


def slow(context: RuleContext, flight: InFlight) -> BatchSlow:
    """Return what moves in a batch that makes progress."""
    work = context.work
    what: dict[str, Any] = {
        "flight": in_flight(context, flight),
        "moves": flight.moves,
        "line": "" if flight.moves is Moves.TASKS else thread_line(context),
        "is_own": work is None or bool(work.own.jobs_active) or not work.unowned.jobs_started,
        "stopping_seconds": stopping_seconds(context),
        "lost": lost_since(context, flight.since),
    }
    repeats = retries(context, flight)
    if repeats is not None:
        jobs, usual_jobs = repeats
        return Retrying(jobs=jobs, usual_jobs=usual_jobs, **what)
    planned = not_committed(context, flight)
    return BatchSlow(**what) if planned is None else NeverCommitted(planned=planned, **what)


def stopping_seconds(context: RuleContext) -> float | None:
    """Return for how long the run goes on although it was stopped; None if it was not."""
    since = context.query.run.stopping_since
    return None if since is None else context.watched_since(since)


def lost_since(context: RuleContext, since: float) -> Losses | None:
    """Return how many executors were lost since then, and why the last one; None for none."""
    polled_at, work = context.query.run.probed_at, context.work
    if work is None or polled_at is None:
        return None
    count = sum(ago <= polled_at - since for ago in work.lost.seconds_ago)
    if not count:
        return None
    return Losses(count, context.watched_since(since), work.lost.reason)


def loses_executors(context: RuleContext, flight: InFlight) -> bool:
    """Whether so many executors were lost again and again since the batch moved that they hold it.

    What was lost while its longest task ran on does not: that is what it waits for. Nor do those
    that were lost together, or for which none came any more: it waits for executors.
    """
    polled_at, work = context.query.run.probed_at, context.work
    if work is None or polled_at is None or delay_of(work) is Delay.WAITING_FOR_SLOTS:
        return False
    if _waited(context, flight) > AUTOSCALE_SECONDS:
        return False
    longest = work.jobs.longest
    survived = 0.0 if longest is None else longest.seconds
    since_moved = polled_at - flight.moved_at
    ages = [ago for ago in work.lost.seconds_ago if survived <= ago <= since_moved]
    return len(ages) >= LOSSES_OF_A_CAUSE and max(ages) - min(ages) > SAMPLE_SECONDS


def delayed(context: RuleContext, flight: InFlight) -> Facts | None:
    """Return what delays a batch in which nothing moves; None without a delay."""
    work = context.work
    if work is None or not work.jobs.jobs_active:
        return None
    batch = in_flight(context, flight)
    if loses_executors(context, flight):
        since_moved = context.watched_since(flight.moved_at)
        return ExecutorsLost(flight=batch, still_seconds=since_moved)
    delay = delay_of(work)
    if delay is None:
        return None
    seconds = still(context, flight)
    if delay is Delay.NO_EXECUTORS:
        return NoExecutors(flight=batch, still_seconds=seconds)
    if delay is Delay.WAITING_FOR_SLOTS:
        return WaitingForSlots(flight=batch, still_seconds=seconds, slots=slots(context))
    return TaskRunning(
        flight=batch,
        still_seconds=seconds,
        tasks=work.jobs.tasks_active,
        is_own=bool(work.own.jobs_active),
        longest=work.jobs.longest,
    )


def hung(context: RuleContext, flight: InFlight) -> BatchHung | SourceHung:
    """Return where a batch, or its planning, is in which nothing moves and that nothing delays."""
    is_retrying = tries_again(context, flight) and not python_line(context)
    place = Place(thread_line(context), is_retrying)
    if flight.batch_id is None:
        probed = context.query.run.probed
        step = (probed.message if probed is not None else "") or "waiting for offsets"
        return SourceHung(step=step, seconds=lasted(context, flight), place=place)
    seconds = None if counts_nothing(context) else still(context, flight)
    return BatchHung(flight=in_flight(context, flight), still_seconds=seconds, place=place)


def slots(context: RuleContext) -> Slots | None:
    """Return who holds the slots; None if it is not known."""
    work = context.work
    if work is None or work.slots is None or not work.slots.total:
        return None
    use = work.slots
    query = _query_of(context, use.holder)
    holder = use.holder[:8] if query is None else query.label
    return Slots(use.total, use.taken, use.held, None if use.holder == UNOWNED else holder)


def _query_of(context: RuleContext, query_id: str) -> Query | None:
    queries = (query for query in context.snapshot.queries if query.query_id == query_id)
    # One that lost its checkpoint to another has the same id.
    return max(queries, key=lambda query: query.run.alive, default=None)


def retries(context: RuleContext, flight: InFlight) -> tuple[int, float] | None:
    """Return how many jobs the batch has run, and how many are usual, if those are far fewer."""
    work = context.work
    usual = context.query.history.jobs_per_batch
    if work is None or flight.jobs_before is None or usual is None or not work.counted:
        return None
    jobs = work.own.jobs_started - flight.jobs_before
    is_usual = jobs < max(RETRIES_AT_LEAST, RETRIES_FACTOR * usual)
    return None if is_usual else (jobs, usual)


def batch_evidence(
    context: RuleContext, flight: InFlight, severity: Severity, *, with_restart: bool = False
) -> Evidence:
    """Collect the evidence of alerts about a batch in flight."""
    is_warning = severity is Severity.WARNING
    return replace(
        collect(context, context.batch_window, with_restart=with_restart),
        slots=slots(context),
        critical_after=_critical_after(context, flight) if is_warning else None,
    )


def _critical_after(context: RuleContext, flight: InFlight) -> CriticalAfter:
    window = context.batch_window.seconds
    longest = slow_limit(context)
    if is_retrying(context, flight):
        return CriticalAfter(_retry_limit(context), After.IN_FLIGHT)
    if moved_lately(context, flight) or holder_of(context):
        return CriticalAfter(longest, After.IN_FLIGHT)
    if delay_of(context.work) is None and may_wait_outside(context, flight):
        return CriticalAfter(max(window, BLOCKED_SECONDS), After.NO_PROGRESS)
    stall = max(window, context.limits.stall_critical_seconds)
    if loses_executors(context, flight):
        return CriticalAfter(stall, After.NO_PROGRESS)
    if counts_nothing(context):
        return CriticalAfter(stall, After.IN_FLIGHT)
    return CriticalAfter(stall, After.NO_TASK, longest)
