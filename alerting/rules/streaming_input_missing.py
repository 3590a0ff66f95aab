"""StreamingInputMissing: a query has read no rows for ``expected_input_seconds``.

An idle query is healthy unless the settings say that data must arrive. This is the last rule: a
query that has failed, is stalled or lags has another alert, which explains why it reads nothing.
"""

from __future__ import annotations

from ...core.states import QueryState
from ...listener.state.query import Query, has_uncounted_rows
from ..evidence import report
from ..finding import Finding, Severity
from ..rule_context import RuleContext

NAME = "StreamingInputMissing"


def check(context: RuleContext) -> Finding | None:
    """Fire when no batch has read rows for both the limit and the window.

    A restarted run continues the count; the time in which the query was down does not count.
    """
    allowed, query = context.limits.expected_input_seconds, context.query
    if allowed is None or not context.is_running:
        return None
    if has_uncounted_rows(query):
        return None
    if query.last_input_at is None:
        seconds = context.watched_since(query.started_at) + query.without_input_before
    else:
        seconds = context.watched_since(query.last_input_at)
    if seconds <= max(allowed, context.window.seconds):
        return None
    reason = f"no rows read for {seconds:.0f} s{_meanwhile(query)} ({allowed:.0f} s allowed)"
    state = QueryState.IDLE if query.activity_seen else QueryState.STARTING
    return report(context, NAME, Severity.WARNING, state, reason, does="gets no data")


def _meanwhile(query: Query) -> str:
    """What the time without rows includes, unless the present run has read some."""
    if query.last_input_at is not None:
        return ""
    return ", over restarts" if query.without_input_before > 0 else ", since its run began"
