"""The batch in flight, as the rules about it see it: how long, why, and from when on critical."""

from __future__ import annotations

from ..listener.delays import Delay, delay_of
from ..listener.job_counts import UNOWNED
from ..listener.probing import JobActivity
from ..listener.query import InFlight
from . import over_restarts
from .evidence import evidence
from .finding import Severity
from .rule_context import RuleContext
from .window import STALL_CRITICAL_SECONDS

RETRIES_AT_LEAST = 10
RETRIES_FACTOR = 5.0
"""A batch that runs so many times the jobs of its query's other batches repeats itself."""


def work_of(context: RuleContext) -> JobActivity | None:
    """The newest closer poll of the run."""
    return context.query.probed.work if context.query.probed is not None else None


def lasted(context: RuleContext, flight: InFlight) -> float:
    """Seconds it has been in flight."""
    return context.watched_since(flight.since)


def still(context: RuleContext, flight: InFlight) -> float:
    """Seconds in which no task of it finished and no job of it began."""
    return context.watched_since(flight.moved_at)


def moved_lately(context: RuleContext, flight: InFlight) -> bool:
    """Whether it has made progress within the window."""
    return still(context, flight) <= context.batch_window.seconds


def is_slow_for_long(context: RuleContext, flight: InFlight) -> bool:
    """Whether it is in flight for so long that its progress does not matter any more."""
    return lasted(context, flight) > slow_limit(context)


def not_committed(context: RuleContext, flight: InFlight) -> str:
    """That no process has committed the batch for as long as is critical in one; empty otherwise.

    A planned stop in the middle of a batch leaves the same behind as a crash. So the run gets its
    window, which fits the batches that its checkpoint shows, before an old plan is held against it.
    """
    found = over_restarts.unfinished(context)
    if (
        found is None
        or flight.batch_id != found.batch_id
        or found.age_seconds <= slow_limit(context)
    ):
        return ""
    return str(found) if lasted(context, flight) > over_restarts.window_seconds(context) else ""


def stall_severity(context: RuleContext, flight: InFlight) -> Severity:
    """Critical once it did nothing at all for the window, or was delayed for several of them."""
    delayed_at = flight.moved_at if flight.delayed_at is None else flight.delayed_at
    nothing_since = max(flight.moved_at, delayed_at)
    if context.watched_since(nothing_since) > context.batch_window.seconds:
        return Severity.CRITICAL
    if still(context, flight) > _stall_limit(context) or is_slow_for_long(context, flight):
        return Severity.CRITICAL
    return Severity.WARNING


def _stall_limit(context: RuleContext) -> float:
    factor = context.limits.stall_critical_factor
    return context.batch_window.critical_after(factor, STALL_CRITICAL_SECONDS)


def slow_limit(context: RuleContext) -> float:
    """Seconds after which a batch in flight is critical, whatever it does."""
    limits = context.limits
    return context.batch_window.critical_after(
        limits.slow_critical_factor, limits.slow_critical_seconds
    )


def delay_text(context: RuleContext) -> tuple[str, str] | None:
    """The first word of the reason, and the facts behind it; None where nothing delays it."""
    work = work_of(context)
    delay = delay_of(work)
    if work is None or delay is None:
        return None
    return delay.value, {
        Delay.TASK_RUNNING: _running(work),
        Delay.NO_EXECUTORS: "no executor is there to run its tasks",
        Delay.WAITING_FOR_SLOTS: f"no task of it runs, {slots_text(context)}",
    }[delay]


def _running(work: JobActivity) -> str:
    count = work.jobs.tasks_active
    tasks = "1 task" if count == 1 else f"{count} tasks"
    if work.own.jobs_active:
        return f"{tasks} running"
    return f"{tasks} running of jobs that name no query"


def slots_text(context: RuleContext) -> str:
    """Who runs tasks: "others hold 4 of 4 slots, bronze 3 of them"; empty where not known."""
    work = work_of(context)
    if work is None or work.slots is None or not work.slots.total:
        return ""
    slots = work.slots
    if not slots.taken:
        return f"others hold 0 of {slots.total} slots"
    holder = _called(context, slots.holder)
    return f"others hold {slots.taken} of {slots.total} slots, {holder} {slots.held} of them"


def _called(context: RuleContext, query_id: str) -> str:
    if query_id == UNOWNED:
        return "jobs that name no query"
    labels = context.snapshot.labels().items()
    return next((label for label, query in labels if query.query_id == query_id), query_id[:8])


def retries_text(context: RuleContext, flight: InFlight) -> str:
    """How many more jobs it has run than this query's batches do; empty where that is usual."""
    work, usual = work_of(context), context.query.jobs_per_batch
    if work is None or flight.jobs_before is None or usual is None or not work.counted:
        return ""
    jobs = work.own.jobs_started - flight.jobs_before
    if jobs < max(RETRIES_AT_LEAST, RETRIES_FACTOR * usual):
        return ""
    return f"{jobs} jobs in this batch so far, at most {usual:.1f} in a usual one"


def batch_evidence(context: RuleContext, severity: Severity) -> dict[str, str]:
    """What only alerts about a batch in flight say."""
    facts = evidence(context, context.batch_window)
    facts["slots"] = slots_text(context)
    if severity is Severity.WARNING:
        facts["critical_after"] = critical_text(context)
    return {name: text for name, text in facts.items() if text}


def critical_text(context: RuleContext) -> str:
    """When a warning about it becomes critical, for those who read the warning."""
    stall, slow = _stall_limit(context), slow_limit(context)
    return f"{stall:.0f} s without a finished task, or {slow:.0f} s in flight"
