"""Evaluation: snapshot, policy and time -> findings and one state per query."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from ..core.states import QueryState
from ..listener.probe import Context
from ..listener.state.flow import Flow, Node, flow_of
from ..listener.state.identity import base_label
from ..listener.state.query import Outcome, Query
from ..listener.state.snapshot import Snapshot
from .finding import Finding, QueryHealth, Severity
from .incidents import gather, with_neighbours, with_upstream
from .policy import Policy, stall_window
from .restarts import was_flapping_already
from .rule_context import RuleContext, is_restarted
from .rules import (
    ORDER,
    batch_slow,
    data_loss_risk,
    driver_down,
    events_missing,
    monitoring_degraded,
    query_failed,
    query_flapping,
    query_given_up,
    query_missing,
    query_stalled,
    query_stopped,
)

INDEPENDENT_RULES = (query_flapping.check, data_loss_risk.check)
"""The rules whose findings are reported in addition to the most severe finding of a query."""

IDLE_AFTER_SECONDS = 10.0
"""Spark's default ``spark.sql.streaming.noDataProgressEventInterval``."""
NOT_EVALUATED = "could not be evaluated"

P = ParamSpec("P")
T = TypeVar("T")


class Evaluation(msgspec.Struct, frozen=True):
    """All findings, and the health of every query by its label, including the absent ones.

    ``errors`` are what rules and other stages have raised, by their names; the others still count.
    """

    findings: tuple[Finding, ...] = ()
    health: dict[str, QueryHealth] = {}
    errors: tuple[tuple[str, Exception], ...] = ()
    flow: Flow = Flow()
    """Who reads what another query writes."""


class Stages:
    """Runs rules and other stages so that one that raises affects no other and no other query.

    ``errors`` has the first error of each: of a rule by the name of its module.
    """

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}

    def run(self, stage: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What the stage returns; None if it raises."""
        try:
            return stage(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the other stages must still run
            self.note(stage, error)
            return None

    def note(self, stage: Callable[..., object], error: Exception) -> None:
        """Keep the error if it is the first of this stage."""
        module = stage.__module__.rpartition(".")[2]
        name = stage.__name__.strip("_") if stage.__module__ == __name__ else module
        self.errors.setdefault(name, error)


def evaluate(snapshot: Snapshot, now: float, policy: Policy) -> Evaluation:
    """Evaluate every query of the snapshot at ``now`` (monotonic seconds)."""
    findings: list[Finding] = []
    health: dict[str, QueryHealth] = {}
    stages = Stages()
    received_at = snapshot.received_at
    for label, query in snapshot.labels().items():
        context = stages.run(
            rule_context, label, query, snapshot, now, policy, received_at=received_at
        )
        if context is None:
            limits = stages.run(policy.limits, query.base_name)
            health[label] = _not_evaluated(query, snapshot, ignore=bool(limits and limits.ignore))
            continue
        found, health[label] = _evaluate_query(context, stages)
        findings += found
    for name, label in (stages.run(absent_queries, snapshot, policy) or {}).items():
        absent, health[label] = stages.run(
            evaluate_absent, name, label, snapshot, now, policy, stages=stages
        ) or (None, QueryHealth(QueryState.STARTING, NOT_EVALUATED, is_unknown=True))
        findings += [absent] if absent is not None else []
    findings = stages.run(with_holders, findings, health) or findings
    flow = stages.run(_flow, snapshot, health, policy) or Flow()
    findings = stages.run(with_neighbours, findings, health, flow) or findings
    health = stages.run(with_upstream, health, flow) or health
    findings += _of_signals(snapshot, now, policy, findings, stages)
    unnamed = {query.label for query in snapshot.queries if query.is_unnamed}
    gathered = stages.run(gather, findings, list(health), unnamed)
    gathered = tuple(findings) if gathered is None else gathered
    return Evaluation(gathered, health, tuple(stages.errors.items()), flow)


def absent_queries(snapshot: Snapshot, policy: Policy) -> dict[str, str]:
    """By name: the labels of supervised and expected queries that no signal has ever seen."""
    seen, names = snapshot.labels(), {query.name for query in snapshot.queries}
    supervised = {label: label for label in snapshot.supervised if label not in seen}
    expected = {name: base_label(name) for name in policy.expected if name not in names}
    return supervised | expected


def evaluate_absent(
    name: str, label: str, snapshot: Snapshot, now: float, policy: Policy, *, stages: Stages
) -> tuple[Finding | None, QueryHealth]:
    """What is wrong with one of them, and its state."""
    limits, supervised = policy.limits(name), snapshot.supervised.get(label)
    found = None
    if supervised is not None and not limits.ignore:
        found = stages.run(query_given_up.check_absent, label, supervised) or stages.run(
            query_missing.check_not_started, label, supervised, limits, snapshot, now
        )
    starts = supervised is not None and supervised.due_at is not None
    if found is None and name in policy.expected and not starts:
        found = stages.run(query_missing.check_absent, label, limits, snapshot, now)
    if found is None:
        reason = "expected, not seen yet" if supervised is None else supervised.failure
        return None, QueryHealth(QueryState.STARTING, reason, ignored=limits.ignore)
    return found, QueryHealth(found.state, found.reason, severity=found.severity)


def _not_evaluated(query: Query, snapshot: Snapshot, *, ignore: bool) -> QueryHealth:
    """The health after an error of ours: it neither opens an alert nor ends one."""
    ended, elsewhere = query.failure, _is_reported_elsewhere(query, snapshot)
    failure = None if ended is None else ended.failure
    return QueryHealth(
        QueryState.STARTING if ended is None else QueryState.FAILED,
        NOT_EVALUATED if failure is None else f"{failure.reason}; {NOT_EVALUATED}",
        ignored=ignore or elsewhere,
        reported_elsewhere=elsewhere and not ignore,
        is_unknown=True,
    )


def _is_reported_elsewhere(query: Query, snapshot: Snapshot) -> bool:
    """Whether another process on the same JVM reports it."""
    return query.reported_elsewhere or not snapshot.ownership.covers(query.session)


def with_holders(findings: list[Finding], health: dict[str, QueryHealth]) -> list[Finding]:
    """Raise the severity of who holds the slots for which others have waited for too long.

    A holder that is not reported here is no subject of an alert: then its victims are critical.
    """
    found = {(finding.query, finding.alertname): finding for finding in findings}
    for holder in sorted({finding.holder for finding in findings} - {""}):
        victims = [finding for finding in findings if finding.holder == holder]
        own = health.get(holder)
        if own is None or own.ignored:
            for victim in victims:
                critical = replace(victim, severity=Severity.CRITICAL)
                found[victim.query, victim.alertname] = critical
            continue
        alert = batch_slow.of_holder(holder, victims, found)
        found[alert.query, alert.alertname] = alert
        health[holder] = replace(
            own, state=alert.state, reason=alert.reason, severity=alert.severity
        )
    return list(found.values())


def _flow(snapshot: Snapshot, labels: Iterable[str], policy: Policy) -> Flow:
    """The graph of all queries; the settings may declare the places of absent ones."""
    known = [Node(query.label, query.base_name, query.places) for query in snapshot.queries]
    absent = {base_label(name): name for name in policy.expected}
    seen = {node.label for node in known}
    known += [Node(one, absent.get(one, one)) for one in labels if one not in seen]
    return flow_of(tuple(known), policy.declared)


def _of_signals(
    snapshot: Snapshot, now: float, policy: Policy, findings: list[Finding], stages: Stages
) -> list[Finding]:
    """Problems of the signals, unless a finding already reports that the JVM does not answer."""
    causes = {finding.cause for finding in findings}
    found = [stages.run(driver_down.check, snapshot, now, policy)]
    if snapshot.ownership.is_eldest:
        found.append(stages.run(events_missing.check, snapshot, now, policy))
        if query_stalled.SHARED_SILENCE not in causes or stages.errors:
            check, errors = monitoring_degraded.check, stages.errors
            degraded = stages.run(check, snapshot, now, policy, tuple(errors))
            if degraded is None and errors:
                degraded = monitoring_degraded.failed(tuple(errors))
            found.append(degraded)
    return [finding for finding in found if finding is not None]


def rule_context(
    label: str,
    query: Query,
    snapshot: Snapshot,
    now: float,
    policy: Policy,
    *,
    received_at: float | None = None,
) -> RuleContext:
    """One query as the rules see it; ``received_at`` is computed once per snapshot."""
    limits = policy.limits(query.base_name)
    window = stall_window(query, limits)
    commit_at = query.last_commit_at
    return RuleContext(
        label=label,
        query=query,
        limits=limits,
        window=window,
        trend_seconds=max(window.seconds, limits.trend_window_seconds),
        is_running=query.alive and snapshot.context is Context.RUNNING,
        batches_come=(commit_at is not None and snapshot.watched(commit_at, now) <= window.seconds),
        expected=query.name in policy.expected,
        expected_errors=policy.expected_errors,
        probe_stale_seconds=policy.probe_stale_seconds,
        process_ends=policy.ends,
        snapshot=snapshot,
        now=now,
        received_at=received_at,
    )


def _evaluate_query(context: RuleContext, stages: Stages) -> tuple[list[Finding], QueryHealth]:
    query, snapshot, ignore = context.query, context.snapshot, context.limits.ignore
    elsewhere = _is_reported_elsewhere(query, snapshot)
    worst = None if ignore else _worst(context, stages)
    health = stages.run(_health, context, worst, elsewhere=elsewhere)
    found = [] if worst is None or elsewhere else _reported(context, worst, stages)
    return found, health or _not_evaluated(query, snapshot, ignore=ignore)


def _health(context: RuleContext, worst: Finding | None, *, elsewhere: bool) -> QueryHealth:
    limits = context.limits
    return QueryHealth(
        state=worst.state if worst is not None else _healthy_state(context),
        reason=worst.reason if worst is not None else _reason_without_finding(context.query),
        window_seconds=context.window.seconds,
        ignored=limits.ignore or elsewhere,
        reported_elsewhere=elsewhere and not limits.ignore,
        expected_input_seconds=limits.expected_input_seconds,
        severity=worst.severity if worst is not None else None,
        restarted=is_restarted(context),
    )


def _worst(context: RuleContext, stages: Stages) -> Finding | None:
    """The first critical finding, else the first; independent ones count only if they are first."""
    worst = None
    for rule in ORDER:
        if worst is not None and rule in INDEPENDENT_RULES:
            continue
        # As ``stages.run``, without its call: this is most of an evaluation.
        try:
            found = rule(context)
        except Exception as error:  # noqa: BLE001 - the other rules must still run
            stages.note(rule, error)
            continue
        if found is not None and found.severity is Severity.CRITICAL:
            return found
        worst = worst or found
    return worst


def _reported(context: RuleContext, worst: Finding, stages: Stages) -> list[Finding]:
    """The most severe finding, and the independent ones: flapping and data loss risk.

    Once the query flaps, a further failure is not reported, unless it is more severe.
    """
    independent = [
        found
        for rule in INDEPENDENT_RULES
        if (found := stages.run(rule, context)) is not None and found.alertname != worst.alertname
    ]
    flaps = [found for found in independent if found.alertname == query_flapping.NAME]
    failed = worst.alertname == query_failed.NAME
    covered = any(worst.severity in {found.severity, Severity.WARNING} for found in flaps)
    if failed and covered and stages.run(was_flapping_already, context.query, context.limits):
        return independent
    return [worst, *independent]


def _reason_without_finding(query: Query) -> str:
    """Why it failed, while it has time to recover; or a note about its checkpoint."""
    failure = query.ended.failure if query.ended is not None else None
    return failure.reason if failure is not None else query.went_back


def _healthy_state(context: RuleContext) -> QueryState:
    """The state of a query without a finding."""
    query = context.query
    if query.ended is not None:
        outcomes = {Outcome.FAILED: QueryState.FAILED, Outcome.COMPLETED: QueryState.COMPLETED}
        return outcomes.get(query.ended.outcome, QueryState.STOPPED)
    if query.vanished_at is not None or context.snapshot.context is not Context.RUNNING:
        return QueryState.STOPPED
    if not query.activity_seen:
        return QueryState.STARTING
    if not _is_idle(context):
        return QueryState.RUNNING
    return QueryState.WAITING if query.holds_back else QueryState.IDLE


def _is_idle(context: RuleContext) -> bool:
    """Whether the query is proven idle for as long as Spark waits before it reports idleness."""
    idle_at, commit_at = context.query.last_idle_at, context.query.last_commit_at
    if context.query.in_flight is not None and context.query.in_flight.batch_id is not None:
        return False
    if idle_at is None or commit_at is None:
        return idle_at is not None
    return idle_at > commit_at and context.now - commit_at >= IDLE_AFTER_SECONDS


# -- main thread ------------------------------------------------------------------------------


ENDED_OR_STUCK = frozenset({query_failed.NAME, query_stopped.NAME, query_stalled.NAME})
MAIN_THREAD = "main_thread"


def with_main_thread(evaluation: Evaluation, main_thread: Callable[[], str]) -> Evaluation:
    """Add the evidence ``main_thread``: where the job's main thread is while a query is down.

    It is read at most once, and only if a finding needs it.
    """
    if not any(finding.alertname in ENDED_OR_STUCK for finding in evaluation.findings):
        return evaluation
    stages = Stages()
    text = stages.run(main_thread)
    findings = tuple(
        replace(finding, evidence={**finding.evidence, MAIN_THREAD: text})
        if text and finding.alertname in ENDED_OR_STUCK
        else finding
        for finding in evaluation.findings
    )
    return replace(
        evaluation, findings=findings, errors=(*evaluation.errors, *stages.errors.items())
    )
