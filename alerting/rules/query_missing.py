"""StreamingQueryMissing: an expected query has not started, or a started one shows no activity."""

from __future__ import annotations

from ...core.states import QueryState
from ...listener.state.snapshot import Snapshot, SupervisedQuery
from ..evidence import evidence
from ..finding import Finding, Severity
from ..policy import Limits
from ..rule_context import RuleContext

NAME = "StreamingQueryMissing"


def check(context: RuleContext) -> Finding | None:
    """Fire for a query whose start event arrived, but that no signal has seen since then.

    If the probe sees the query, it is not missing: the other rules check what it does.
    """
    query = context.query
    if not query.alive or query.activity_seen or query.probed is not None:
        return None
    waited = context.watched_since(query.started_at)
    if waited <= context.limits.start_grace_seconds:
        return None
    return _finding(
        context.label, f"started {waited:.0f} s ago, no activity since", evidence(context)
    )


def check_absent(label: str, limits: Limits, snapshot: Snapshot, now: float) -> Finding | None:
    """Fire for an expected query that no signal has seen within the start grace period.

    For a supervised one, the period begins when its start function returns.
    """
    supervised = snapshot.supervised.get(label)
    started_at = supervised.started_at if supervised is not None else None
    since = snapshot.began_at if started_at is None else started_at
    waited = snapshot.watched(since, now)
    if limits.ignore or snapshot.context.explains_ends or waited <= limits.start_grace_seconds:
        return None
    names = ", ".join(sorted(snapshot.labels())) or "none"
    reason = f"expected, but not seen in {waited:.0f} s of monitoring"
    return _finding(label, reason, {"known_queries": names})


def check_not_started(
    label: str, supervised: SupervisedQuery, limits: Limits, snapshot: Snapshot, now: float
) -> Finding | None:
    """Fire for a supervised query whose start is overdue by more than the start grace period."""
    due_at = supervised.due_at
    waited = 0.0 if due_at is None else snapshot.watched(due_at, now)
    if snapshot.context.explains_ends or waited <= limits.start_grace_seconds:
        return None
    return _finding(label, f"its start has been due for {waited:.0f} s", {})


def _finding(label: str, reason: str, facts: dict[str, str]) -> Finding:
    summary = f"{label} is missing: {reason}"
    return Finding(NAME, label, Severity.CRITICAL, QueryState.MISSING, reason, summary, facts)
