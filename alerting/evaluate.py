"""Evaluation: snapshot, policy and time -> findings and one state per query.

Each query is evaluated alone. Then findings that share a cause become one, and each says how the
other queries are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from ..core.states import QueryState
from ..core.text import listed
from ..listener.probe import Context
from ..listener.state.flow import Flow, Node, flow_of
from ..listener.state.identity import UNNAMED, base_label
from ..listener.state.query import Outcome, Query
from ..listener.state.snapshot import Snapshot
from .alert_text import several_do
from .finding import (
    DRIVER_DOWN,
    NOT_WORKING,
    QUERY_FAILED,
    QUERY_FLAPPING,
    QUERY_STALLED,
    QUERY_STOPPED,
    WHOLE_DRIVER,
    Finding,
    QueryHealth,
    Severity,
)
from .policy import Policy, stall_window
from .rule_context import RuleContext, is_restarted
from .rules import ORDER
from .rules.data import data_loss_risk
from .rules.monitoring import driver_down, events_missing, monitoring_degraded, rules_failed
from .rules.progress import SHARED_SILENCE, of_holder
from .rules.query_ends import (
    expected_query_missing,
    given_up_before_start,
    query_flapping,
    start_overdue,
    was_flapping_already,
)

INDEPENDENT_RULES = (query_flapping, data_loss_risk)
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

    ``errors`` has the first error of each, by its name.
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
        self.errors.setdefault(stage.__name__.strip("_"), error)


def evaluate(
    snapshot: Snapshot,
    now: float,
    policy: Policy,
    is_silenced: Callable[[Finding], bool] = lambda _finding: False,
) -> Evaluation:
    """Evaluate every query of the snapshot at ``now`` (monotonic seconds).

    ``is_silenced`` says whether nobody is notified of a finding.
    """
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
        reported, health[label] = _evaluate_query(context, stages)
        findings += reported
    for name, label in (stages.run(absent_queries, snapshot, policy) or {}).items():
        absent, health[label] = stages.run(
            evaluate_absent, name, label, snapshot, now, policy, stages=stages
        ) or (None, QueryHealth(QueryState.STARTING, NOT_EVALUATED, is_unknown=True))
        findings += [absent] if absent is not None else []
    findings = stages.run(with_holders, findings, health, is_silenced) or findings
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
    finding = None
    if supervised is not None and not limits.ignore:
        finding = stages.run(given_up_before_start, label, supervised) or stages.run(
            start_overdue, label, supervised, limits, snapshot, now
        )
    starts = supervised is not None and supervised.due_at is not None
    if finding is None and name in policy.expected and not starts:
        finding = stages.run(expected_query_missing, label, limits, snapshot, now)
    if finding is None:
        reason = "expected, not seen yet" if supervised is None else supervised.failure
        return None, QueryHealth(QueryState.STARTING, reason, ignored=limits.ignore)
    return finding, QueryHealth(finding.state, finding.reason, severity=finding.severity)


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


def with_holders(
    findings: list[Finding], health: dict[str, QueryHealth], is_silenced: Callable[[Finding], bool]
) -> list[Finding]:
    """Raise the severity of who holds the slots for which others have waited for too long.

    If nobody is notified of the holder, as it is ignored or silenced, its victims are critical.
    """
    raised = {(finding.query, finding.alertname): finding for finding in findings}
    for holder in sorted({finding.holder for finding in findings} - {""}):
        victims = [finding for finding in findings if finding.holder == holder]
        own, alert = health.get(holder), of_holder(holder, victims, raised)
        is_watched = own is not None and not own.ignored
        if own is not None and is_watched:
            raised[alert.query, alert.alertname] = alert
            health[holder] = replace(
                own, state=alert.state, reason=alert.reason, severity=alert.severity
            )
        if not is_watched or is_silenced(alert):
            raised |= {
                (victim.query, victim.alertname): replace(victim, severity=Severity.CRITICAL)
                for victim in victims
            }
    return list(raised.values())


def _flow(snapshot: Snapshot, labels: Iterable[str], policy: Policy) -> Flow:
    """The graph of all queries; the settings may declare the places of absent ones."""
    nodes = [Node(query.label, query.base_name, query.places) for query in snapshot.queries]
    absent = {base_label(name): name for name in policy.expected}
    seen = {node.label for node in nodes}
    nodes += [Node(label, absent.get(label, label)) for label in labels if label not in seen]
    return flow_of(tuple(nodes), policy.declared)


def _of_signals(
    snapshot: Snapshot, now: float, policy: Policy, findings: list[Finding], stages: Stages
) -> list[Finding]:
    """Problems of the signals, unless a finding already reports that the JVM does not answer."""
    causes = {finding.cause for finding in findings}
    problems = [stages.run(driver_down, snapshot, now, policy)]
    if snapshot.ownership.is_eldest:
        problems.append(stages.run(events_missing, snapshot, now, policy))
        if SHARED_SILENCE not in causes or stages.errors:
            check, errors = monitoring_degraded, stages.errors
            degraded = stages.run(check, snapshot, now, policy, tuple(errors))
            if degraded is None and errors:
                degraded = rules_failed(tuple(errors))
            problems.append(degraded)
    return [finding for finding in problems if finding is not None]


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
        policy=policy,
        snapshot=snapshot,
        now=now,
        received_at=received_at,
    )


def _evaluate_query(context: RuleContext, stages: Stages) -> tuple[list[Finding], QueryHealth]:
    query, snapshot, ignore = context.query, context.snapshot, context.limits.ignore
    elsewhere = _is_reported_elsewhere(query, snapshot)
    worst = None if ignore else _worst(context, stages)
    health = stages.run(_health, context, worst, elsewhere=elsewhere)
    findings = [] if worst is None or elsewhere else _reported(context, worst, stages)
    return findings, health or _not_evaluated(query, snapshot, ignore=ignore)


def _health(context: RuleContext, worst: Finding | None, *, elsewhere: bool) -> QueryHealth:
    limits, query = context.limits, context.query
    failure = query.ended.failure if query.ended is not None else None
    # Why it failed, while it has time to recover; or a note about its checkpoint.
    reason = failure.reason if failure is not None else query.went_back
    return QueryHealth(
        state=worst.state if worst is not None else _healthy_state(context),
        reason=worst.reason if worst is not None else reason,
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
            finding = rule(context)
        except Exception as error:  # noqa: BLE001 - the other rules must still run
            stages.note(rule, error)
            continue
        if finding is not None and finding.severity is Severity.CRITICAL:
            return finding
        worst = worst or finding
    return worst


def _reported(context: RuleContext, worst: Finding, stages: Stages) -> list[Finding]:
    """The most severe finding, and the independent ones: flapping and data loss risk.

    Once the query flaps, a further failure is not reported, unless it is more severe.
    """
    independent = [
        finding
        for rule in INDEPENDENT_RULES
        if (finding := stages.run(rule, context)) and finding.alertname != worst.alertname
    ]
    is_covered = worst.alertname == QUERY_FAILED and any(
        finding.alertname == QUERY_FLAPPING
        and worst.severity in {finding.severity, Severity.WARNING}
        for finding in independent
    )
    if is_covered and stages.run(was_flapping_already, context.query, context.limits):
        return independent
    return [worst, *independent]


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


# -- findings of one cause ----------------------------------------------------------------------

MAX_LISTED = 10
"""The most unnamed queries that one alert lists, the newest first."""
MAX_UNHEALTHY = 20
"""The most unhealthy queries that each alert lists: all would be 25 KB for each of a thousand."""


def gather(
    findings: Sequence[Finding], labels: Sequence[str], unnamed: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Merge findings that share a cause; add to each how many queries of the driver are healthy.

    With only one query in the driver, its finding stays its own and has no such line; neither has
    an alert that the JVM has ended. A stopped SparkContext is a shared cause even for one query; a
    JVM that does not answer is one only if several queries are stalled. Queries without a name
    (``unnamed`` are their labels) share one finding for each alert name.
    """
    unhealthy = sorted({finding.query for finding in findings} - {WHOLE_DRIVER})
    shared: dict[tuple[str, str], list[Finding]] = {}
    merged: list[Finding] = []
    for finding in findings:
        if finding.cause and len(labels) > 1:
            shared.setdefault((finding.alertname, finding.cause), []).append(finding)
        else:
            merged.append(finding)
    for (_, cause), members in shared.items():
        alone = cause == SHARED_SILENCE and len(members) == 1
        merged += members if alone else [_incident(members)]
    merged = _of_unnamed(merged, unnamed)
    if len(labels) == 1:
        return tuple(merged)
    text = f"{len(labels) - len(unhealthy)} of {len(labels)} healthy"
    text += f"; unhealthy: {listed(unhealthy, MAX_UNHEALTHY)}" if unhealthy else ""
    all_queries = {"all_queries": text}
    return tuple(
        finding
        if finding.alertname == DRIVER_DOWN
        else replace(finding, evidence={**all_queries, **finding.evidence})
        for finding in merged
    )


def _incident(members: list[Finding]) -> Finding:
    first = members[0]
    names = sorted(finding.query for finding in members)
    return replace(
        first,
        query=WHOLE_DRIVER,
        reason=f"{first.cause}: {', '.join(names)}",
        summary=several_do(first.alertname, first.cause, names),
        evidence={
            "queries": "\n".join(f"{finding.query}: {finding.reason}" for finding in members)
        },
    )


def _of_unnamed(findings: Sequence[Finding], unnamed: Collection[str]) -> list[Finding]:
    others: list[Finding] = []
    shared: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.query in unnamed:
            shared.setdefault(finding.alertname, []).append(finding)
        else:
            others.append(finding)
    return others + [_one_for_unnamed(members) for members in shared.values()]


def _one_for_unnamed(members: list[Finding]) -> Finding:
    """The newest of the most severe findings; it lists the others."""
    critical = [finding for finding in members if finding.severity is Severity.CRITICAL]
    newest = (critical or members)[-1]
    finding = replace(
        newest,
        query=UNNAMED,
        reason=f"{newest.query}: {newest.reason}",
        members=tuple(member.query for member in members),
    )
    count = len(members)
    if count == 1:
        return finding
    lines = [f"{member.query}: {member.reason}" for member in reversed(members[-MAX_LISTED:])]
    if count > MAX_LISTED:
        lines.append(f"and {count - MAX_LISTED} more")
    return replace(
        finding,
        reason=f"{count} queries without a name, the newest {finding.reason}",
        summary=f"{count} queries without a name, the newest {newest.summary}",
        evidence={"queries": "\n".join(lines), **newest.evidence},
    )


# -- starving ---------------------------------------------------------------------------------
# Which queries get no data because another one is broken.
#
# A place is dry while all its writers are broken, or cut off themselves; writers that ended as
# intended do not count. A query is cut off if a place that it reads is dry.

RETIRED = frozenset({QueryState.STOPPED, QueryState.COMPLETED})
MAX_TRACED = 100
"""For how many findings of one evaluation the queries downstream are listed."""
_SAYS = {
    QueryState.FAILED: "failed",
    QueryState.MISSING: "is missing",
    QueryState.STOPPED_UNEXPECTEDLY: "stopped",
    QueryState.STALLED: "is stalled",
}

Health = Mapping[str, QueryHealth]


def with_upstream(health: Health, flow: Flow) -> dict[str, QueryHealth]:
    """The health with the reason ``upstream bronze failed`` for each starving query.

    A query starves if it is idle, without a problem of its own, and cut off by broken queries,
    directly or through queries that are idle too.
    """
    idle = {label for label, query in health.items() if query.state is QueryState.IDLE}
    causes = cut_off(_in_state(health, NOT_WORKING), health, flow, passes=idle.__contains__)
    return {
        label: replace(query, reason=f"upstream {_problem_of(causes[label], health)}")
        if label in causes and label in idle and not query.reason
        else query
        for label, query in health.items()
    }


def with_neighbours(findings: Sequence[Finding], health: Health, flow: Flow) -> list[Finding]:
    """The findings with the evidence ``downstream`` and ``upstream``.

    The finding of a broken query lists the queries that it cuts off. That of a query which is cut
    off itself names the broken one.
    """
    if not flow.downstream:
        return list(findings)
    causes = cut_off(_in_state(health, NOT_WORKING), health, flow)
    broken = {finding.query for finding in findings if finding.state in NOT_WORKING}
    traced = set(sorted(broken)[:MAX_TRACED])
    extended = []
    for finding in findings:
        query, facts = finding.query, {}
        readers = sorted(cut_off([query], health, flow)) if query in traced else []
        if readers:
            verb = "gets" if len(readers) == 1 else "get"
            facts["downstream"] = f"{listed(readers)} {verb} no data from it"
        if query in causes:
            facts["upstream"] = _problem_of(causes[query], health)
        extended.append(replace(finding, evidence={**finding.evidence, **facts}))
    return extended


def cut_off(
    roots: Iterable[str],
    health: Health,
    flow: Flow,
    passes: Callable[[str], bool] = lambda _label: True,
) -> dict[str, str]:
    """By label: the root that cuts a query off, the nearest first. Roots are not among them.

    ``passes`` says through which queries the search goes on.
    """
    causes: dict[str, str] = {}
    # What a query that ended as intended has written is as dry as that of a broken one.
    dry = set(_in_state(health, NOT_WORKING | RETIRED))
    waiting = deque(roots)
    while waiting:
        writer = waiting.popleft()
        for reader in flow.downstream.get(writer, ()):
            if reader in causes or reader in dry or reader not in health:
                continue
            places = (writers for writers in flow.feeds[reader] if writer in writers)
            if not any(dry.issuperset(writers) for writers in places):
                continue
            causes[reader] = causes.get(writer, writer)
            if passes(reader):
                dry.add(reader)
                waiting.append(reader)
    return causes


def retired(health: Health) -> frozenset[str]:
    """The labels of queries that ended as intended."""
    return frozenset(_in_state(health, RETIRED))


def _in_state(health: Health, states: Collection[QueryState]) -> list[str]:
    return [label for label, query in health.items() if query.state in states]


def _problem_of(root: str, health: Health) -> str:
    """Such as ``bronze failed``."""
    return f"{root} {_SAYS[health[root].state]}"


# -- main thread ------------------------------------------------------------------------------

ENDED_OR_STUCK = frozenset({QUERY_FAILED, QUERY_STOPPED, QUERY_STALLED})
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
