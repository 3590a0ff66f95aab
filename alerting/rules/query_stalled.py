"""StreamingQueryStalled: an active query has no commit for its window W and is not proven idle.

The reason begins with a code:

* ``batch_hung``: a batch is in flight, none of its tasks has finished and its thread has not worked
  for W; a warning at first if the job's own Python is blocked, or Spark's thread tries again;
* ``task_running``, ``no_executors``, ``waiting_for_slots``: the same, but a task of the batch runs,
  Spark has no executor, or other jobs hold all slots; these are warnings at first;
* ``source_hung``: the query has been waiting for the offsets of a source for W;
* ``no_trigger``: no batch is in flight and no trigger has started one;
* ``commit_log_behind``: the commit log of the checkpoint does not advance, although batches run
  (async progress tracking) or epochs should (Continuous);
* ``silent``: events, probe and commit log all show no activity.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...core.states import QueryState
from ...listener.state.query import InFlight
from .. import stuck_batch
from ..alert_text import code_last
from ..evidence import evidence, on_restart, report, with_age
from ..finding import Finding, Severity
from ..policy import WINDOW_FACTOR
from ..rule_context import RuleContext

NAME = "StreamingQueryStalled"
SHARED_SILENCE = "the JVM does not answer"
MIN_POLLS = 2


def check(context: RuleContext) -> Finding | None:
    """Fire when the query has had no activity for longer than its window."""
    if not context.is_running:
        return None
    reason = _log_behind(context) or (_epochs_stopped(context) if _is_continuous(context) else None)
    if reason is not None:
        return _finding(context, reason)
    reason = None if _is_continuous(context) else _stall_reason(context)
    if reason is None:
        return None
    flight = context.query.in_flight
    reason = stuck_batch.with_stop(with_age(reason, context), context)
    if flight is None or _is_blind(context, flight) or _waits_for_log(context):
        return _finding(context, reason)
    severity = stuck_batch.stall_severity(context, flight)
    facts = stuck_batch.batch_evidence(context, flight, severity)
    finding = _finding(context, reason, severity, facts)
    return replace(finding, holder=stuck_batch.to_page(context, flight))


def _is_blind(context: RuleContext, flight: InFlight) -> bool:
    """Whether nothing shows what the batch in flight waits for.

    A late poll does not change that the last one showed a delay, or what may wait outside: a pause
    of the JVM alone makes no such batch critical.
    """
    if not context.probe_is_stale:
        return False
    shown = stuck_batch.delay_text(context) or stuck_batch.may_wait_outside(context, flight)
    return context.driver_is_silent or not shown


def _finding(
    context: RuleContext,
    reason: str,
    severity: Severity = Severity.CRITICAL,
    facts: dict[str, str] | None = None,
) -> Finding:
    facts = (evidence(context) if facts is None else facts) | on_restart(context.query)
    cause = SHARED_SILENCE if context.driver_is_silent else ""
    does, says, state = "is stalled", code_last(reason), QueryState.STALLED
    return report(
        context, NAME, severity, state, reason, does=does, says=says, facts=facts, cause=cause
    )


def _is_continuous(context: RuleContext) -> bool:
    return context.query.facts is not None and context.query.facts.trigger.is_continuous


def _epochs_stopped(context: RuleContext) -> str | None:
    """Only the commit log shows the progress of a Continuous query: None until it has been read."""
    query = context.query
    if query.logged_at is None or context.probe_is_stale:
        return None
    unseen = context.watched_since(query.logged_at)
    silence = context.watched_since(query.last_activity_at) - unseen
    if silence <= context.window.seconds:
        return None
    return f"commit_log_behind: no epoch committed for {silence:.0f} s"


def _log_behind(context: RuleContext) -> str | None:
    """Async progress tracking: poll after poll batches advanced, but the commit log did not.

    Spark may write the log rarely, so it may lag by its interval while batches run. Spark blocks
    the query when too many entries wait to be written; then only idleness excuses the log.
    """
    lag, facts = context.query.log_behind, context.query.facts
    if lag is None or lag.polls < MIN_POLLS or facts is None or _idle_since_commit(context):
        return None
    seconds = context.watched_since(lag.since) - _unread(context) - _in_flight(context)
    allowed = context.window.seconds
    if context.batches_come:
        allowed = max(allowed, facts.log_interval_seconds * WINDOW_FACTOR)
    if seconds <= allowed:
        return None
    logged = context.query.logged.committed if context.query.logged is not None else None
    where = "empty" if logged is None else f"at batch {logged}"
    return (
        f"commit_log_behind: the commit log has been {where} for {seconds:.0f} s, "
        f"while batches have reached {context.query.last_commit_batch}"
    )


def _unread(context: RuleContext) -> float:
    """Seconds since the log was last read: it may have advanced meanwhile."""
    logged_at = context.query.logged_at
    return 0.0 if logged_at is None else context.watched_since(logged_at)


def _in_flight(context: RuleContext) -> float:
    """Seconds of the batch in flight, unless it is critical: the log waits for it to finish."""
    flight = context.query.in_flight
    if flight is None or context.probe_is_stale or _waits_for_log(context):
        return 0.0
    delayed = stuck_batch.stall_severity(context, flight) is Severity.WARNING
    excused = delayed or stuck_batch.moved_lately(context, flight)
    return stuck_batch.lasted(context, flight) if excused else 0.0


def _idle_since_commit(context: RuleContext) -> bool:
    idle_at, commit_at = context.query.last_idle_at, context.query.last_commit_at
    return idle_at is not None and (commit_at is None or idle_at > commit_at)


def _silence(context: RuleContext) -> float:
    """Seconds since the last activity; a JVM that does not answer counts only after a window."""
    silence = context.watched_since(context.query.last_activity_at)
    if not context.probe_is_stale or context.received_at is None or context.driver_is_silent:
        return silence
    return silence - context.watched_since(context.received_at)


def _stall_reason(context: RuleContext) -> str | None:
    """The reason, or None while the query may still make progress."""
    flight, silence = context.query.in_flight, _silence(context)
    if context.query.probed is None or context.probe_is_stale:
        at_work = (
            flight is not None and context.watched_since(flight.moved_at) <= context.window.seconds
        )
        if silence <= context.window.seconds or (at_work and not _waits_for_log(context)):
            return None
        return f"silent: no activity for {silence:.0f} s from events, probe or commit log"
    if flight is None:
        if silence <= context.window.seconds:
            return None
        return f"no_trigger: no batch in flight and no trigger for {silence:.0f} s"
    return _flight_reason(context, flight) if silence > context.batch_window.seconds else None


def _flight_reason(context: RuleContext, flight: InFlight) -> str | None:
    since = stuck_batch.lasted(context, flight)
    if _waits_for_log(context):
        return f"commit_log_behind: the next batch has waited for the commit log for {since:.0f} s"
    if stuck_batch.moved_lately(context, flight):
        return None
    still = stuck_batch.still(context, flight)
    if stuck_batch.is_bare(context) and still <= stuck_batch.AUTOSCALE_SECONDS:
        return None
    what = (
        "planning the next batch"
        if flight.batch_id is None
        else f"batch {flight.batch_id} in flight"
    )
    delay = stuck_batch.delay_text(context)
    if delay is not None:
        code, facts = delay
        return f"{code}: {what} for {since:.0f} s, {facts}, none finished for {still:.0f} s"
    place = stuck_batch.place_text(context)
    at = f", blocked at {place}" if place else ""
    if stuck_batch.tries_again(context, flight) and not stuck_batch.python_line(context):
        at = f", its thread in Spark tries again now and then{f' at {place}' if place else ''}"
    if flight.batch_id is None:
        probed = context.query.probed
        step = (probed.message if probed is not None else "") or "waiting for offsets"
        return f"source_hung: {step!r} for {since:.0f} s{at}"
    nothing = f"no task of its own finished for {still:.0f} s"
    if stuck_batch.counts_nothing(context):
        nothing = "Spark Connect does not show its tasks"
    return f"batch_hung: {what} for {since:.0f} s, {nothing}{at}"


def _waits_for_log(context: RuleContext) -> bool:
    """Whether Spark reports that the query only waits for its commit log."""
    probed = context.query.probed
    return probed is not None and probed.work is not None and probed.work.waits_for_log
