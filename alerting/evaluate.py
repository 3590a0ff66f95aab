"""Judging: snapshot, policy and the moment -> findings and one state per query. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from ..listener.probing import Context
from ..listener.query import Outcome, Query
from ..listener.snapshot import Snapshot
from .case import Case
from .evidence import siblings
from .finding import Finding, State
from .policy import Limits, Policy
from .rules import ORDER, query_missing
from .window import stall_window

IDLE_AFTER_SECONDS = 10.0
"""Spark's default ``spark.sql.streaming.noDataProgressEventInterval``."""


class Verdict(msgspec.Struct, frozen=True):
    """The state of one query, why, and its stall window in seconds.

    An ``ignored`` query has a state, but nobody is told of it and nothing depends on it.
    """

    state: State
    reason: str = ""
    window_seconds: float | None = None
    ignored: bool = False


class Judgement(msgspec.Struct, frozen=True):
    """All findings, and a verdict for every query by its label, the absent ones included."""

    findings: tuple[Finding, ...] = ()
    verdicts: dict[str, Verdict] = {}


def evaluate(snapshot: Snapshot, now: float, policy: Policy) -> Judgement:
    """Judge every query of the snapshot at ``now`` (monotonic seconds)."""
    findings: list[Finding] = []
    verdicts: dict[str, Verdict] = {}
    for label, query in snapshot.labels().items():
        finding, verdict = _judge(label, query, snapshot, now, policy)
        verdicts[label] = verdict
        if finding is not None:
            findings.append(finding)
    names = {query.name for query in snapshot.queries}
    for name in policy.expected:
        if name not in names:
            limits = policy.limits(name)
            absent = query_missing.check_absent(name, limits, snapshot, now)
            verdicts[name] = _absent(absent, limits)
            findings += [absent] if absent is not None else []
    return Judgement(_with_siblings(findings, list(verdicts)), verdicts)


def _with_siblings(findings: list[Finding], labels: list[str]) -> tuple[Finding, ...]:
    text = siblings([finding.query for finding in findings], labels)
    return tuple(
        replace(finding, evidence={"siblings": text, **finding.evidence}) for finding in findings
    )


def _judge(
    label: str, query: Query, snapshot: Snapshot, now: float, policy: Policy
) -> tuple[Finding | None, Verdict]:
    limits = policy.limits(query.base_name)
    window = stall_window(query, limits)
    case = Case(
        label=label,
        query=query,
        limits=limits,
        window=window,
        expected=query.name in policy.expected,
        probe_stale_seconds=policy.probe_stale_seconds,
        snapshot=snapshot,
        now=now,
    )
    finding = None if limits.ignore else _first_finding(case)
    if finding is None:
        return None, Verdict(_calm_state(case), "", window.seconds, limits.ignore)
    return finding, Verdict(finding.state, finding.reason, window.seconds)


def _first_finding(case: Case) -> Finding | None:
    return next((found for rule in ORDER if (found := rule(case)) is not None), None)


def _calm_state(case: Case) -> State:
    """The state of a query that no rule complains about."""
    query = case.query
    if query.ended is not None:
        outcomes = {Outcome.FAILED: State.FAILED, Outcome.COMPLETED: State.COMPLETED}
        return outcomes.get(query.ended.outcome, State.STOPPED)
    if query.vanished_at is not None or case.snapshot.context is not Context.RUNNING:
        return State.STOPPED
    if not query.first_sign_seen:
        return State.STARTING
    return State.IDLE if _is_idle(case) else State.RUNNING


def _is_idle(case: Case) -> bool:
    """Idle by proof, and for as long as Spark itself waits before it says so."""
    idle_at, commit_at = case.query.last_idle_at, case.query.last_commit_at
    if idle_at is None or commit_at is None:
        return idle_at is not None
    return idle_at > commit_at and case.now - commit_at >= IDLE_AFTER_SECONDS


def _absent(finding: Finding | None, limits: Limits) -> Verdict:
    if finding is None:
        return Verdict(State.STARTING, "expected, not seen yet", ignored=limits.ignore)
    return Verdict(finding.state, finding.reason)
