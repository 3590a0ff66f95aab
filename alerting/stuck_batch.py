"""The batch in flight: how long it has run, what delays it, and when it is critical."""

from __future__ import annotations

from ..listener.probe import UNOWNED, JobActivity
from ..listener.state.query import Delay, InFlight, delay_of
from . import restarts
from .evidence import evidence
from .finding import Severity
from .policy import STALL_CRITICAL_SECONDS
from .rule_context import RuleContext

RETRIES_AT_LEAST = 10
RETRIES_FACTOR = 5.0
"""A batch retries if it runs this many times the jobs of the query's other batches."""


def work_of(context: RuleContext) -> JobActivity | None:
    """The job activity of the run at the newest probe."""
    return context.query.probed.work if context.query.probed is not None else None


def lasted(context: RuleContext, flight: InFlight) -> float:
    """Seconds for which the batch has been in flight."""
    return context.watched_since(flight.since)


def still(context: RuleContext, flight: InFlight) -> float:
    """Seconds since a task of the batch finished or a job of it began."""
    return context.watched_since(flight.moved_at)


def moved_lately(context: RuleContext, flight: InFlight) -> bool:
    """Whether the batch has made progress within the window."""
    return still(context, flight) <= context.batch_window.seconds


def is_slow_for_long(context: RuleContext, flight: InFlight) -> bool:
    """Whether the batch is critical by its time in flight alone."""
    return lasted(context, flight) > _slow_limit(context)


def not_committed(context: RuleContext, flight: InFlight) -> str:
    """A text if no process has committed the batch for longer than the critical time; else empty.

    A planned stop in the middle of a batch leaves the same files as a crash. So an old plan counts
    only after the run has had its window, which follows the batches in its checkpoint.
    """
    found = restarts.unfinished(context)
    if (
        found is None
        or flight.batch_id != found.batch_id
        or found.age_seconds <= _slow_limit(context)
    ):
        return ""
    return str(found) if lasted(context, flight) > restarts.window_seconds(context) else ""


def stall_severity(context: RuleContext, flight: InFlight) -> Severity:
    """Critical after one window without any progress or delay, or after several delayed ones."""
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


def _slow_limit(context: RuleContext) -> float:
    """Seconds after which a batch in flight is critical, even if it makes progress."""
    limits = context.limits
    return context.batch_window.critical_after(
        limits.slow_critical_factor, limits.slow_critical_seconds
    )


def delay_text(context: RuleContext) -> tuple[str, str] | None:
    """The code that begins the reason, and the facts behind it; None without a delay."""
    work = work_of(context)
    delay = delay_of(work)
    if work is None or delay is None:
        return None
    return delay.value, {
        Delay.TASK_RUNNING: _running(work),
        Delay.NO_EXECUTORS: "no executor is available to run its tasks",
        Delay.WAITING_FOR_SLOTS: f"none of its tasks is running, {slots_text(context)}",
    }[delay]


def _running(work: JobActivity) -> str:
    count = work.jobs.tasks_active
    tasks = "1 task" if count == 1 else f"{count} tasks"
    if work.own.jobs_active:
        return f"{tasks} running"
    return f"{tasks} running in jobs that name no query"


def slots_text(context: RuleContext) -> str:
    """Who holds the slots: "others hold 4 of 4 slots, bronze 3 of them"; empty if not known."""
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
    """How many jobs the batch has run, if far more than usual for the query; else empty."""
    work, usual = work_of(context), context.query.jobs_per_batch
    if work is None or flight.jobs_before is None or usual is None or not work.counted:
        return ""
    jobs = work.own.jobs_started - flight.jobs_before
    if jobs < max(RETRIES_AT_LEAST, RETRIES_FACTOR * usual):
        return ""
    return f"{jobs} jobs in this batch so far, usually at most {usual:.1f}"


def batch_evidence(context: RuleContext, severity: Severity) -> dict[str, str]:
    """The evidence of alerts about a batch in flight."""
    facts = evidence(context, context.batch_window)
    facts["slots"] = slots_text(context)
    if severity is Severity.WARNING:
        stall, slow = _stall_limit(context), _slow_limit(context)
        facts["critical_after"] = (
            f"{stall:.0f} s without a finished task, or {slow:.0f} s in flight"
        )
    return facts
