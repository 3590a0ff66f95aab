"""StreamingBatchSlow: a batch takes longer than the window, but its tasks still finish.

The first batch of a run may take long: it processes what arrived while the query was down, and
the usual duration is not known yet. It is reported only when it is critical: it has been in flight
for too long, or earlier processes planned it long ago and none of them committed it.
"""

from __future__ import annotations

from ...core.states import QueryState
from ...listener.state.query import InFlight, Query
from .. import stuck_batch
from ..alert_text import code_last
from ..evidence import report
from ..finding import Finding, Severity
from ..rule_context import RuleContext

NAME = "StreamingBatchSlow"


def check(context: RuleContext) -> Finding | None:
    """Fire while the batch in flight makes slow progress; without progress the query is stalled."""
    flight = context.query.in_flight
    if flight is None or not _is_slow(context, flight):
        return None
    never_committed = stuck_batch.not_committed(context, flight)
    critical = bool(never_committed) or stuck_batch.is_slow_for_long(context, flight)
    if context.query.last_commit_at is None and not critical:
        return None
    severity = Severity.CRITICAL if critical else Severity.WARNING
    retries = stuck_batch.retries_text(context, flight)
    seconds = stuck_batch.lasted(context, flight)
    finishes = _what_finishes(context.query)
    reason = f"batch {flight.batch_id} in flight for {seconds:.0f} s, {finishes}"
    if retries:
        reason = f"retrying: {reason}, {retries}"
    elif never_committed:
        reason = f"not_committed: {reason}, {never_committed}"
    facts = stuck_batch.batch_evidence(context, severity)
    return report(
        context,
        NAME,
        severity,
        QueryState.SLOW,
        reason,
        does="is slow",
        says=code_last(reason),
        facts=facts,
    )


def _is_slow(context: RuleContext, flight: InFlight) -> bool:
    """Whether a batch has been in flight for longer than the window and still makes progress."""
    if not context.is_running or flight.batch_id is None or context.probe_is_stale:
        return False
    if (
        context.query.last_commit_batch is not None
        and flight.batch_id <= context.query.last_commit_batch
    ):
        # The batch is done: its event arrived before the next poll.
        return False
    too_long = stuck_batch.lasted(context, flight) > context.batch_window.seconds
    return too_long and stuck_batch.moved_lately(context, flight)


def _what_finishes(query: Query) -> str:
    work = query.probed.work if query.probed is not None else None
    if work is None or work.own.jobs_active or not work.unowned.jobs_started:
        return "its tasks still finish"
    return "its tasks still finish, or those of jobs that name no query"
