"""The batch in flight: how long it has run, what moves or holds it, and when it is critical."""

from __future__ import annotations

from math import inf

from ...listener.probe_report import UNOWNED, JobActivity, Moves
from ...listener.state.query import Delay, InFlight, Query, delay_of
from ..finding import Severity
from .context import RuleContext
from .evidence import evidence, unfinished

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
    planning_since = context.query.last_activity_at if flight.batch_id is None else flight.since
    return context.watched_since(max(flight.since, planning_since))


def still(context: RuleContext, flight: InFlight) -> float:
    """Seconds since a task of the batch finished, a job of it began, or its thread worked.

    Once it has executors and slots, the wait for them counts no more.
    """
    waited_at = None if is_waiting(context) else flight.waited_at
    return context.watched_since(max(flight.moved_at, waited_at or -inf))


def is_slow(context: RuleContext, flight: InFlight) -> bool:
    """Whether the batch has been in flight for longer than its window, and waits for nothing."""
    equipped_at = -inf if flight.without_executors_at is None else flight.without_executors_at
    with_executors = min(lasted(context, flight), context.watched_since(equipped_at))
    is_long = not is_waiting(context) and with_executors > context.batch_window.seconds
    return is_long or is_slow_for_long(context, flight)


def is_waiting(context: RuleContext) -> bool:
    """Whether the batch waits for executors or slots."""
    delay = delay_of(context.work)
    return delay is not None and delay is not Delay.TASK_RUNNING


def has_no_executors(context: RuleContext) -> bool:
    """Whether the batch waits because Spark has no executor."""
    return delay_of(context.work) is Delay.NO_EXECUTORS


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
    return context.query.last_commit_at is not None and bool(retries_text(context, flight))


def _retry_limit(context: RuleContext) -> float:
    """Seconds after which a batch in flight that repeats its jobs is critical."""
    limit = max(context.batch_window.seconds, context.limits.stall_critical_seconds)
    return min(limit, slow_limit(context))


def not_committed(context: RuleContext, flight: InFlight) -> str:
    """A text if no process has committed the batch for longer than the critical time; else empty.

    A planned stop in the middle of a batch leaves the same files as a crash. So an old plan counts
    only after the run has had its window, which follows the batches in its checkpoint.
    """
    batch = unfinished(context)
    if batch is None or flight.batch_id != batch.batch_id:
        return ""
    is_old = batch.age_seconds > slow_limit(context)
    return str(batch) if is_old and lasted(context, flight) > context.batch_window.seconds else ""


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
        is_victim = not is_slow_for_long(context, flight) or bool(to_page(context, flight))
        return Severity.WARNING if is_victim else Severity.CRITICAL
    is_long = still(context, flight) > max(window, limits.stall_critical_seconds)
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
    work = context.work
    if work is None or work.slots is None or delay_of(work) is not Delay.WAITING_FOR_SLOTS:
        return None
    holder = _query_of(context, work.slots.holder)
    return holder if holder is not None and holder.alive else None


def to_page(context: RuleContext, flight: InFlight) -> str:
    """The label of the query that must be paged for, since this one has waited too long for it.

    One batch of the holder must have been in flight while this one stood still.
    """
    holder = holder_of(context)
    held = holder.in_flight if holder is not None else None
    if holder is None or held is None or not is_slow_for_long(context, flight):
        return ""
    return holder.label if held.since <= flight.moved_at + SAMPLE_SECONDS else ""


SCHEDULER_BLOCKED_SECONDS = 30.0
"""Its event loop handles an event within milliseconds. In a short window, half of that counts."""


def scheduler_text(context: RuleContext) -> str:
    """Why Spark starts and ends no job of any query; empty while its scheduler works."""
    probe = context.snapshot.probe
    loop = None if probe is None or context.probe_is_stale else probe.scheduler
    if loop is None:
        return ""
    if not loop.alive:
        return "the thread dag-scheduler-event-loop has ended, so that no job starts or ends"
    if loop.waits_seconds > min(SCHEDULER_BLOCKED_SECONDS, context.batch_window.seconds / 2):
        seconds = f"{loop.waits_seconds:.0f} s"
        return f"the thread dag-scheduler-event-loop has handled no event for {seconds}"
    return ""


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


def place_text(context: RuleContext) -> str:
    """Where the thread that runs the batch is: a Python line, else the JVM's frame, else empty."""
    work = context.work
    if work is None:
        return ""
    return work.python_line or next(iter(work.jvm_stack), "")


def moves_text(context: RuleContext, flight: InFlight) -> str:
    """What moves in a batch that makes progress."""
    if flight.moves is Moves.TASKS:
        work = context.work
        is_own = work is None or work.own.jobs_active or not work.unowned.jobs_started
        others = "" if is_own else ", or those of jobs that name no query"
        return f"its tasks still finish{others}"
    thread = "Python thread" if flight.moves is Moves.PYTHON else "thread in the driver"
    place = place_text(context)
    return f"no task of its own runs, its {thread} works{f' at {place}' if place else ''}"


def with_stop(reason: str, context: RuleContext) -> str:
    """The reason, and since when the run goes on although it was stopped."""
    since = context.query.stopping_since
    if since is None:
        return reason
    return f"{reason}; it was stopped {context.watched_since(since):.0f} s ago and still runs"


def delay_text(context: RuleContext) -> tuple[str, str] | None:
    """The code that begins the reason, and the facts behind it; None without a delay."""
    work = context.work
    delay = delay_of(work)
    if work is None or delay is None:
        return None
    return delay.value, {
        Delay.TASK_RUNNING: _running(work),
        Delay.NO_EXECUTORS: "no executor is available to run its tasks",
        Delay.WAITING_FOR_SLOTS: f"none of its tasks is running, {slots_text(context)}",
    }[delay]


def _running(work: JobActivity) -> str:
    count, task = work.jobs.tasks_active, work.jobs.longest
    whose = "" if work.own.jobs_active else " in jobs that name no query"
    text = f"{'1 task' if count == 1 else f'{count} tasks'} running{whose}"
    if task is None:
        return text
    beside = ""
    if task.usual_seconds is not None:
        beside = f", while its siblings took {round(task.usual_seconds, 1):g} s"
    where = f"partition {task.partition} of stage {task.stage} on {task.host}"
    return f"{text} ({where} for {task.seconds:.0f} s{beside})"


def slots_text(context: RuleContext) -> str:
    """Who holds the slots: "others hold 4 of 4 slots, bronze 3 of them"; empty if not known."""
    work = context.work
    if work is None or work.slots is None or not work.slots.total:
        return ""
    slots = work.slots
    if not slots.taken:
        return f"others hold 0 of {slots.total} slots"
    query = _query_of(context, slots.holder)
    holder = slots.holder[:8] if query is None else query.label
    holder = "jobs that name no query" if slots.holder == UNOWNED else holder
    return f"others hold {slots.taken} of {slots.total} slots, {holder} {slots.held} of them"


def _query_of(context: RuleContext, query_id: str) -> Query | None:
    queries = (query for query in context.snapshot.queries if query.query_id == query_id)
    # One that lost its checkpoint to another has the same id.
    return max(queries, key=lambda query: query.alive, default=None)


def retries_text(context: RuleContext, flight: InFlight) -> str:
    """How many jobs the batch has run, if far more than usual for the query; else empty."""
    work, usual = context.work, context.query.jobs_per_batch
    if work is None or flight.jobs_before is None or usual is None or not work.counted:
        return ""
    jobs = work.own.jobs_started - flight.jobs_before
    if jobs < max(RETRIES_AT_LEAST, RETRIES_FACTOR * usual):
        return ""
    return f"{jobs} jobs in this batch so far, usually at most {usual:.1f}"


def batch_evidence(context: RuleContext, flight: InFlight, severity: Severity) -> dict[str, str]:
    """The evidence of alerts about a batch in flight."""
    facts = evidence(context, context.batch_window)
    facts["slots"] = slots_text(context)
    if severity is Severity.WARNING:
        facts["critical_after"] = _critical_after(context, flight)
    return facts


def _critical_after(context: RuleContext, flight: InFlight) -> str:
    window, slow = context.batch_window.seconds, slow_limit(context)
    if is_retrying(context, flight):
        return f"{_retry_limit(context):.0f} s in flight"
    if moved_lately(context, flight) or holder_of(context):
        return f"{slow:.0f} s in flight"
    if delay_of(context.work) is None and may_wait_outside(context, flight):
        return f"{max(window, BLOCKED_SECONDS):.0f} s without progress"
    stall = max(window, context.limits.stall_critical_seconds)
    if counts_nothing(context):
        return f"{stall:.0f} s in flight"
    return f"{stall:.0f} s without a finished task, or {slow:.0f} s in flight"
