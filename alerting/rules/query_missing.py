"""StreamingQueryMissing: on the roster, or started, yet never made a first sign of life."""

from __future__ import annotations

from ...listener.snapshot import Snapshot
from ..evidence import evidence
from ..finding import Finding, QueryState, Severity
from ..policy import Limits
from ..rule_context import RuleContext

NAME = "StreamingQueryMissing"


def check(context: RuleContext) -> Finding | None:
    """Fire for a query that was announced and that no witness has seen do anything since.

    Where the probe sees it, it is there: what it does is for the other rules.
    """
    query = context.query
    if not query.alive or query.first_sign_seen or query.probed is not None:
        return None
    waited = context.watched_since(query.started_at)
    if waited <= context.limits.start_grace_seconds:
        return None
    return _finding(
        context.label, f"started {waited:.0f} s ago, no sign of life since", evidence(context)
    )


def check_absent(label: str, limits: Limits, snapshot: Snapshot, now: float) -> Finding | None:
    """Fire for a name on the roster that nobody has heard of after the start grace."""
    waited = snapshot.watched(snapshot.began_at, now)
    if limits.ignore or snapshot.context.explains_ends or waited <= limits.start_grace_seconds:
        return None
    known = ", ".join(sorted(snapshot.labels())) or "none"
    reason = f"expected, but never seen in {waited:.0f} s of watching"
    return _finding(label, reason, {"known_queries": known})


def _finding(label: str, reason: str, evidence_: dict[str, str]) -> Finding:
    return Finding(
        alertname=NAME,
        query=label,
        severity=Severity.CRITICAL,
        state=QueryState.MISSING,
        reason=reason,
        summary=f"{label} is missing: {reason}",
        evidence=evidence_,
    )
