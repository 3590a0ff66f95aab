"""StreamingBatchSlow: a batch takes longer than the window, but it moves.

Its tasks finish, or the thread that runs it uses CPU time: a loop of requests in ``foreachBatch``,
the first listing of a folder, commit work in the driver.

The first batch of a run may take long: it processes what arrived while the query was down, and
the usual duration is not known yet. While its tasks finish, it is reported only when it is
critical: it has been in flight for too long, or earlier processes planned it long ago and none of
them committed it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...core.states import QueryState
from ...listener.probe import Moves
from ...listener.state.query import InFlight
from .. import stuck_batch
from ..alert_text import code_last
from ..evidence import report
from ..finding import Finding, Severity
from ..rule_context import RuleContext

NAME = "StreamingBatchSlow"
STALLED = "StreamingQueryStalled"
WAITING = "waiting"
"""The evidence of a query that holds the slots: who waits for them."""


def check(context: RuleContext) -> Finding | None:
    """Fire while the batch in flight makes slow progress; without progress the query is stalled."""
    flight = context.query.in_flight
    if flight is None or not _is_slow(context, flight):
        return None
    never_committed = stuck_batch.not_committed(context, flight)
    critical = bool(never_committed) or stuck_batch.is_slow_for_long(context, flight)
    may_catch_up = context.query.last_commit_at is None and flight.moves is Moves.TASKS
    if may_catch_up and not critical:
        return None
    severity = Severity.CRITICAL if critical else Severity.WARNING
    retries = stuck_batch.retries_text(context, flight)
    seconds = stuck_batch.lasted(context, flight)
    is_planned = flight.batch_id is not None
    what = f"batch {flight.batch_id} in flight" if is_planned else "planning the next batch"
    reason = f"{what} for {seconds:.0f} s, {stuck_batch.moves_text(context, flight)}"
    if retries:
        reason = f"retrying: {reason}, {retries}"
    elif never_committed:
        reason = f"not_committed: {reason}, {never_committed}"
    reason = stuck_batch.with_stop(reason, context)
    facts = stuck_batch.batch_evidence(context, flight, severity)
    does, says, state = "is slow", code_last(reason), QueryState.SLOW
    return report(context, NAME, severity, state, reason, does=does, says=says, facts=facts)


def _is_slow(context: RuleContext, flight: InFlight) -> bool:
    """Whether a batch has been in flight for longer than the window and still makes progress."""
    if not context.is_running or context.probe_is_stale:
        return False
    done = context.query.last_commit_batch
    if flight.batch_id is not None and done is not None and flight.batch_id <= done:
        # The batch is done: its event arrived before the next poll.
        return False
    return stuck_batch.is_slow(context, flight) and stuck_batch.moved_lately(context, flight)


def of_holder(
    holder: str, victims: list[Finding], findings: Mapping[tuple[str, str], Finding]
) -> Finding:
    """The critical finding about a query whose tasks hold the slots that ``victims`` wait for.

    If it has a finding about its batch of its own, that one says so too.
    """
    names = ", ".join(sorted(victim.query for victim in victims))
    reason = f"slots_held: its tasks hold the slots that {names} wait for"
    own = findings.get((holder, NAME)) or findings.get((holder, STALLED))
    if own is None:
        summary = f"{holder} keeps others from running: {code_last(reason)}"
        facts = {WAITING: names, "slots": victims[0].evidence["slots"]}
        critical = Severity.CRITICAL
        return Finding(NAME, holder, critical, QueryState.SLOW, reason, summary, facts)
    return replace(
        own,
        severity=Severity.CRITICAL,
        reason=f"{own.reason}; {names} wait for its slots",
        summary=f"{own.summary}; {names} wait for its slots",
        evidence={**own.evidence, WAITING: names},
    )
