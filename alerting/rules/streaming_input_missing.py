"""StreamingInputMissing: a query has read no rows for ``expected_input_seconds``.

An idle query is healthy unless the settings say that data must arrive. Without them, a source whose
offsets advance in many batches in a row without a row reads around its data. This is the last rule:
a query that has failed, is stalled or lags has another alert, which explains why it reads nothing.
"""

from __future__ import annotations

from ...core.states import QueryState
from ...listener.state.query import Query, has_uncounted_rows
from ..evidence import report
from ..finding import Finding, Severity
from ..rule_context import RuleContext

NAME = "StreamingInputMissing"
MANY_BATCHES = 100


def check(context: RuleContext) -> Finding | None:
    """Fire when no batch has read rows for both the limit and the window.

    A restarted run continues the count; the time in which the query was down does not count.
    """
    allowed, query = context.limits.expected_input_seconds, context.query
    if not (context.is_running or context.is_between_runs):
        return None
    empty = _reads_around_its_data(context)
    if empty:
        return _report(context, empty)
    if allowed is None or has_uncounted_rows(query):
        return None
    if query.last_input_at is None:
        seconds = context.watched_since(query.started_at) + query.without_input_before
    else:
        seconds = context.watched_since(query.last_input_at)
    if seconds <= max(allowed, context.window.seconds):
        return None
    reason = f"no rows read for {seconds:.0f} s{_meanwhile(query)} ({allowed:.0f} s allowed)"
    return _report(context, reason)


def _report(context: RuleContext, reason: str) -> Finding:
    state = QueryState.IDLE if context.query.activity_seen else QueryState.STARTING
    return report(context, NAME, Severity.WARNING, state, reason, does="gets no data")


def _reads_around_its_data(context: RuleContext) -> str:
    """Such as an Iceberg table after a compaction, or changes that all are skipped."""
    for trend in context.query.trends.sources:
        empty = trend.empty
        if empty is None or empty.batches < MANY_BATCHES or not context.batches_come:
            continue
        seconds = context.watched_since(empty.since)
        if seconds > context.trend_seconds:
            return (
                f"{trend.description}: {empty.batches} batches in a row read no rows in "
                f"{seconds:.0f} s, although its offsets advance"
            )
    return ""


def _meanwhile(query: Query) -> str:
    """What the time without rows includes, unless the present run has read some."""
    if query.last_input_at is not None:
        return ""
    return ", over restarts" if query.without_input_before > 0 else ", since its run began"
