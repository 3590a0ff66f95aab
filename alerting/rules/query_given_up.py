"""StreamingQueryGivenUp: ``supervise`` does not restart the query any more."""

from __future__ import annotations

from ...core.states import QueryState
from ...listener.state.snapshot import SupervisedQuery
from ..evidence import evidence, failure_facts, on_restart
from ..finding import Finding, Severity
from ..rule_context import RuleContext

NAME = "StreamingQueryGivenUp"


def check(context: RuleContext) -> Finding | None:
    """Fire until the query runs again or is forgotten."""
    supervised = context.snapshot.supervised.get(context.label)
    if supervised is None or not supervised.given_up or context.query.alive:
        return None
    ended = context.query.failure
    facts = evidence(context) | on_restart(context.query)
    if ended is not None and ended.failure is not None:
        facts |= failure_facts(ended.failure)
    return _finding(context.label, supervised, {name: text for name, text in facts.items() if text})


def check_absent(label: str, supervised: SupervisedQuery) -> Finding | None:
    """Fire for a query that never started."""
    return _finding(label, supervised, {}) if supervised.given_up else None


def _finding(label: str, supervised: SupervisedQuery, facts: dict[str, str]) -> Finding:
    reason = supervised.given_up
    summary = f"{label} is not restarted any more: {reason}"
    facts = {"restarts": str(supervised.restarts), **facts}
    return Finding(NAME, label, Severity.CRITICAL, QueryState.FAILED, reason, summary, facts)
