"""StreamingQueryStopped: a run ended without an exception although it should keep running."""

from __future__ import annotations

from ...core.states import QueryState
from ...listener.probe import Context
from ...listener.state.query import Outcome
from ..evidence import report
from ..finding import Finding, Severity
from ..rule_context import RuleContext, is_restarted

NAME = "StreamingQueryStopped"
NOTICED_SECONDS = 5.0
SLOWLY_NOTICED_SECONDS = 15.0
"""The next poll detects that a SparkContext stopped; its queries may have ended before that."""
CONTEXT_GONE = "the SparkContext stopped by itself"


def check(context: RuleContext) -> Finding | None:
    """Fire when the query has not restarted within the grace period.

    Queries with ``once`` and ``availableNow`` end by themselves and do not fire, unless a
    SparkContext that stopped by itself cut them off. Neither does a query after ``expect_stop``,
    one that ``supervise`` restarts, or one in an application that stops its own SparkContext. If
    the trigger is unknown, the alert fires only for an expected query.
    """
    gone_at = _gone_at(context)
    if gone_at is None or context.snapshot.context.explains_ends:
        return None
    if context.query.failure is not None:
        # ``query_failed`` reports it, and knows how much time it has.
        return None
    with_context = _ended_with_context(context, gone_at)
    if context.query.stop_expected or not _should_run(context, with_context=with_context):
        return None
    if is_restarted(context) and not with_context:
        return None
    grace = 0.0 if context.policy.crashed else context.limits.gone_grace_seconds
    if grace and (context.watched_since(gone_at) <= grace or _is_unconfirmed(context)):
        return None
    how, seconds = _how_it_ended(context, with_context=with_context), context.watched_since(gone_at)
    reason = f"{how} {seconds:.0f} s ago and has not restarted"
    state = QueryState.STOPPED_UNEXPECTEDLY
    cause = CONTEXT_GONE if with_context else ""
    does = "is not running"
    return report(context, NAME, Severity.CRITICAL, state, reason, does=does, cause=cause)


def _is_unconfirmed(context: RuleContext) -> bool:
    """Whether a single poll lacked the run, and none has followed: the run may still be active.

    Once the probe does not answer any more, only events can show that; a continuous query has none.
    """
    probe, query = context.snapshot.probe, context.query
    if probe is None or query.ended is not None or query.vanished_at is None:
        return False
    if probe.at > query.vanished_at:
        return False
    shows_life = query.last_event_at is not None and query.last_event_at > query.vanished_at
    has_events = query.facts is None or not query.facts.trigger.is_continuous
    return shows_life or not (has_events and context.probe_is_stale)


def _gone_at(context: RuleContext) -> float | None:
    if context.query.gone_at is not None:
        return context.query.gone_at
    # Spark still lists idle queries as active after their SparkContext has stopped.
    return context.snapshot.context_stopped_at


def _should_run(context: RuleContext, *, with_context: bool) -> bool:
    """Whether the query should run; one that ends by itself should unless it has completed."""
    trigger, ended = context.query.trigger, context.query.ended
    if trigger is None:
        return context.query.name in context.policy.expected
    if not trigger.ends_by_itself:
        return True
    return with_context and (ended is None or ended.outcome is not Outcome.COMPLETED)


def _ended_with_context(context: RuleContext, gone_at: float) -> bool:
    """Whether the SparkContext ended the query; a query that ended earlier has another cause.

    The context stopped after the last poll that saw it running, which may be some seconds ago if
    polls are slow.
    """
    stopped_at, ran_at = context.snapshot.context_stopped_at, context.snapshot.context_ran_at
    if context.snapshot.context is not Context.STOPPED or stopped_at is None:
        return False
    earliest = stopped_at - NOTICED_SECONDS
    if ran_at is not None:
        earliest = min(earliest, max(ran_at, stopped_at - SLOWLY_NOTICED_SECONDS))
    return gone_at >= earliest


def _how_it_ended(context: RuleContext, *, with_context: bool) -> str:
    if with_context:
        return "ended with its SparkContext, which stopped by itself"
    if context.query.ended is None:
        return "disappeared without an end event"
    return "stopped without an exception"
