"""Whether ``supervise`` takes care of a query that is down. Pure."""

from __future__ import annotations

from .rule_context import RuleContext


def is_handled(context: RuleContext) -> bool:
    """Whether ``supervise`` restarts the query, or StreamingQueryGivenUp pages for it."""
    supervised = context.snapshot.supervised.get(context.label)
    return supervised is not None and (bool(supervised.given_up) or is_restarted(context))


def is_restarted(context: RuleContext) -> bool:
    """Whether ``supervise`` restarts the query, so that its failure pages nobody yet.

    It does not while its start is overdue by more than ``start_grace_seconds``: then a start
    function hangs, its own or that of another query.
    """
    supervised = context.snapshot.supervised.get(context.label)
    if supervised is None or supervised.given_up:
        return False
    since = supervised.waits_since(context.query.gone_at)
    return since is None or context.watched_since(since) <= context.limits.start_grace_seconds
