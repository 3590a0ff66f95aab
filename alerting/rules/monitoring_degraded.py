"""QuerypulseMonitoringDegraded: no probe, an unreadable checkpoint, or a rule that fails.

Events still report failures, but a query that emits no events can hang unseen.
"""

from __future__ import annotations

from ...core.states import QueryState
from ...listener.probe import Context
from ...listener.state.query import Query
from ...listener.state.snapshot import Snapshot
from ..finding import WHOLE_DRIVER, Finding, Severity
from ..policy import Policy

NAME = "QuerypulseMonitoringDegraded"


def check(
    snapshot: Snapshot, now: float, policy: Policy, failed_rules: tuple[str, ...] = ()
) -> Finding | None:
    """Fire for the whole driver when querypulse cannot read one of its signals.

    ``failed_rules`` have raised an error, which is a bug in querypulse.
    """
    texts = [_failed(failed_rules)] if failed_rules else []
    if policy.probe_expected and snapshot.context is Context.RUNNING:
        texts += [_probe(snapshot, now, policy), _log(snapshot, now, policy)]
    reason = "; ".join(text for text in texts if text)
    return _finding(reason) if reason else None


def failed(failed_rules: tuple[str, ...]) -> Finding:
    """What is left to report if this rule itself has raised an error."""
    return _finding(_failed(failed_rules))


def _failed(failed_rules: tuple[str, ...]) -> str:
    return f"rules that fail: {', '.join(failed_rules)}"


def _finding(reason: str) -> Finding:
    summary = f"querypulse cannot see every query: {reason}"
    warning, state = Severity.WARNING, QueryState.RUNNING
    return Finding(NAME, WHOLE_DRIVER, warning, state, reason, summary, {})


def _probe(snapshot: Snapshot, now: float, policy: Policy) -> str:
    last = snapshot.probe.at if snapshot.probe is not None else snapshot.began_at
    silent = snapshot.watched(last, now)
    if silent <= policy.defaults.stall_floor_seconds:
        return ""
    return f"the JVM has not answered the probe for {silent:.0f} s"


def _log(snapshot: Snapshot, now: float, policy: Policy) -> str:
    if snapshot.probe is not None and not snapshot.probe.listener.checkpoints_visible:
        return ""
    why = snapshot.log.unreadable if snapshot.log is not None else {}
    unread = [
        f"{label}: {why.get(query.run_id, 'no answer')}"
        for label, query in snapshot.labels().items()
        if query.alive
        and (facts := query.facts) is not None
        and (facts.trigger.is_continuous or facts.async_progress)
        and _is_unread(snapshot, query, now, policy)
    ]
    return f"checkpoints cannot be read: {'; '.join(unread)}" if unread else ""


def _is_unread(snapshot: Snapshot, query: Query, now: float, policy: Policy) -> bool:
    limits = policy.limits(query.base_name)
    if query.logged_at is None:
        grace = max(limits.stall_floor_seconds, limits.start_grace_seconds)
        return snapshot.watched(query.started_at, now) > grace
    return snapshot.watched(query.logged_at, now) > limits.stall_floor_seconds
