"""Queries that should run, and that no signal has ever shown. Pure."""

from __future__ import annotations

from ..core.states import QueryState
from ..listener.labels import base_label
from ..listener.snapshot import Snapshot
from .finding import Finding
from .policy import Policy
from .query_health import QueryHealth
from .rule_runner import RuleRunner
from .rules import query_given_up, query_missing


def absent_queries(snapshot: Snapshot, policy: Policy) -> dict[str, str]:
    """By name: the labels of supervised and expected queries that no signal has seen."""
    known, names = snapshot.labels(), {query.name for query in snapshot.queries}
    supervised = {label: label for label in snapshot.supervised if label not in known}
    expected = {name: base_label(name) for name in policy.expected if name not in names}
    return supervised | expected


def evaluate_absent(
    name: str, label: str, snapshot: Snapshot, now: float, policy: Policy, *, rules: RuleRunner
) -> tuple[Finding | None, QueryHealth]:
    """What is wrong with one of them, and its state."""
    limits, supervised = policy.limits(name), snapshot.supervised.get(label)
    found = None
    if supervised is not None and not limits.ignore:
        found = rules.run(query_given_up.check_absent, label, supervised) or rules.run(
            query_missing.check_not_started, label, supervised, limits, snapshot, now
        )
    starts = supervised is not None and supervised.due_at is not None
    if found is None and name in policy.expected and not starts:
        found = rules.run(query_missing.check_absent, label, limits, snapshot, now)
    if found is None:
        reason = "expected, not seen yet" if supervised is None else supervised.failure
        return None, QueryHealth(QueryState.STARTING, reason, ignored=limits.ignore)
    return found, QueryHealth(found.state, found.reason, severity=found.severity)
