"""StreamingQueryFailed: a run ended with an exception, and no later run has committed.

If earlier processes planned its batch and none of them committed it, the reason says so and for
how long: the job restarts again and again and does not get past this batch.
"""

from __future__ import annotations

from ...core.states import QueryState
from ...listener.state.query import Ended
from .. import restarts
from ..evidence import evidence, report
from ..finding import Finding, Severity
from ..restarts import on_restart
from ..rule_context import RuleContext, is_restarted

NAME = "StreamingQueryFailed"


def check(context: RuleContext) -> Finding | None:
    """Fire after the grace period (0 s by default), and keep firing until a new run commits.

    While ``supervise`` restarts the query, the alert is a warning; so it is if the process ends
    within the grace, since a restart is expected.
    """
    ended = context.query.failure
    if ended is None or ended.failure is None:
        return None
    grace = context.limits.failed_grace_seconds
    has_time = grace > 0 and context.watched_since(_failing_since(context, ended)) <= grace
    if has_time and not context.process_ends:
        return None
    failure = ended.failure
    headline = failure.headline
    if has_time:
        headline += f"; the process ends, and a restart is expected within {grace:.0f} s"
    facts = {
        **evidence(context),
        **on_restart(context.query),
        "error_class": failure.error_class,
        "exception": "" if failure.exception == failure.error_class else failure.exception,
        "table": failure.table,
        "python_line": failure.raised_at.line,
        "traceback": failure.raised_at.traceback,
        "error_message": "" if failure.reason.endswith(failure.message) else failure.message,
        "seen_by": ended.signal,
    }
    return report(
        context,
        NAME,
        Severity.WARNING if has_time or is_restarted(context) else Severity.CRITICAL,
        QueryState.FAILED,
        restarts.with_age(failure.reason, context),
        does="failed",
        says=restarts.with_age(headline, context),
        facts=facts,
    )


def _failing_since(context: RuleContext, ended: Ended) -> float:
    """When the query first failed since it last committed, also in earlier processes."""
    unrecovered = context.query.unrecovered_deaths
    failures = context.query.deaths[-unrecovered:] if unrecovered else ()
    return min((failure.at for failure in failures), default=ended.at)
