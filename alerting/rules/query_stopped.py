"""StreamingQueryStopped: a run ended without an exception though it should run for ever."""

from __future__ import annotations

from ...listener.probing import Context
from ...listener.query import Outcome
from ..evidence import evidence
from ..finding import Finding, QueryState, Severity
from ..rule_context import RuleContext

NAME = "StreamingQueryStopped"
NOTICED_SECONDS = 5.0
"""A SparkContext that stops is noticed by the next poll, the ends of its queries may be before."""
CONTEXT_GONE = "the SparkContext stopped by itself"


def check(context: RuleContext) -> Finding | None:
    """Fire when the query is not back within the grace.

    ``once`` and ``availableNow`` end by themselves, unless a SparkContext that stops by itself cuts
    them off; an application that stops its own
    SparkContext has said so, and so has who called ``expect_stop``. Where the trigger is
    unknown, only the roster counts.
    """
    gone_at = _gone_at(context)
    if gone_at is None or context.snapshot.context.explains_ends:
        return None
    with_context = _ended_with_context(context, gone_at)
    if context.query.stop_expected or not _should_be_there(context, with_context=with_context):
        return None
    if context.watched_since(gone_at) <= context.limits.gone_grace_seconds:
        return None
    how, seconds = _reason(context, with_context=with_context), context.watched_since(gone_at)
    reason = f"{how} {seconds:.0f} s ago and not back"
    return Finding(
        alertname=NAME,
        query=context.label,
        severity=Severity.CRITICAL,
        state=QueryState.STOPPED_UNEXPECTEDLY,
        reason=reason,
        summary=f"{context.label} is gone: {reason}",
        evidence=evidence(context),
        cause=CONTEXT_GONE if with_context else "",
    )


def _gone_at(context: RuleContext) -> float | None:
    if context.query.gone_at is not None:
        return context.query.gone_at
    # Spark still calls idle queries active in a SparkContext that is gone.
    return context.snapshot.context_stopped_at


def _should_be_there(context: RuleContext, *, with_context: bool) -> bool:
    """A run that ends by itself should be there until it has: its SparkContext may cut it off."""
    trigger, ended = context.query.trigger, context.query.ended
    if trigger is None:
        return context.expected
    if not trigger.ends_by_itself:
        return True
    return with_context and (ended is None or ended.outcome is not Outcome.COMPLETED)


def _ended_with_context(context: RuleContext, gone_at: float) -> bool:
    """A query that was gone before has another cause, and was reported for that."""
    stopped_at = context.snapshot.context_stopped_at
    if context.snapshot.context is not Context.STOPPED or stopped_at is None:
        return False
    return gone_at >= stopped_at - NOTICED_SECONDS


def _reason(context: RuleContext, *, with_context: bool) -> str:
    if with_context:
        return "ended with its SparkContext, which stopped by itself"
    if context.query.ended is None:
        return "vanished without a word"
    return "stopped without an exception"
