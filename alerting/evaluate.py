"""Evaluation: snapshot, policy and time -> findings and one state per query.

Each query is evaluated alone. Then one pass over all findings adds what the queries share: who
holds the slots, who gets no data because of whom, and which findings have one cause.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from ..core.states import QueryState
from ..listener.probe_report import Context
from ..listener.python_frames import MainThread
from ..listener.state.flow import Flow, Node, cut_off, flow_of
from ..listener.state.identity import UNNAMED, base_label
from ..listener.state.query import Query
from ..listener.state.run import Outcome
from ..listener.state.snapshot import Snapshot
from .evidence import NO_EVIDENCE, DriverEvidence
from .facts import (
    Facts,
    Failed,
    JvmEnded,
    Member,
    NotEvaluated,
    NotSeenYet,
    Restarting,
    ShareCause,
    Unnamed,
    Upstream,
)
from .finding import NOT_WORKING, WHOLE_DRIVER, Finding, QueryHealth, Severity, Words
from .kinds import (
    DRIVER_DOWN,
    MONITORING_DEGRADED,
    QUERY_FAILED,
    QUERY_FLAPPING,
    QUERY_STOPPED,
    SharedCause,
    kind_of,
)
from .policy import Policy
from .rules import ORDER, RULES
from .rules.context import RuleContext, is_restarted, rule_context
from .rules.evidence import ids_went_back
from .rules.monitoring import driver_down, events_missing, monitoring_degraded, rules_failed
from .rules.progress import slots_held
from .rules.query_ends import program_ended, query_absent, run_due_at, was_flapping_already
from .rules.resources import disk_filling, driver_memory, memory_of
from .rules.stuck_batch import waiting_by_holder
from .words.evidence import likely_cause_text
from .words.messages import say
from .words.reasons import reason_of

ENDS = frozenset({QUERY_FAILED, QUERY_STOPPED})
"""Alerts for which ``await_any_failure`` raises."""
INDEPENDENT_RULES = frozenset(rule for name, rule in RULES.items() if kind_of(name).is_independent)
IDLE_AFTER_SECONDS = 10.0
"""Spark's default ``spark.sql.streaming.noDataProgressEventInterval``."""

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
    main_thread: Callable[[], MainThread] = MainThread,
) -> Evaluation:
    """Evaluate every query of the snapshot at ``now`` (monotonic seconds).

    ``is_silenced`` says whether nobody is notified of a finding, and ``main_thread`` where the
    job's main thread is.
    """
    findings: list[Finding] = []
    health: dict[str, QueryHealth] = {}
    stages, received_at = Stages(), snapshot.received_at
    for query in snapshot.queries:
        context = stages.run(rule_context, query, snapshot, now, policy, received_at)
        evaluated = None if context is None else stages.run(_evaluate_query, context, stages)
        if evaluated is None:
            limits = stages.run(policy.limits, query.base_name)
            evaluated = [], _not_evaluated(query, snapshot, ignore=bool(limits and limits.ignore))
        findings += evaluated[0]
        health[query.label] = evaluated[1]
    for label, name in (stages.run(_absent, snapshot, policy) or {}).items():
        unknown = QueryHealth(QueryState.STARTING, NotEvaluated(), is_unknown=True)
        absent = stages.run(_evaluate_absent, label, name, snapshot, now, policy)
        finding, health[label] = absent or (None, unknown)
        findings += [finding] if finding is not None else []
    findings = stages.run(_page_holders, findings, health, is_silenced, snapshot) or findings
    flow = stages.run(_flow, snapshot, health, policy) or Flow()
    findings = stages.run(_trace_flow, findings, health, flow) or findings
    findings += _of_signals(snapshot, now, policy, findings, stages)
    findings = stages.run(_with_memory, findings, snapshot, now) or findings
    unnamed = {query.label for query in snapshot.queries if query.is_unnamed}
    findings = stages.run(gather, findings, list(health), unnamed) or findings
    if any(kind_of(finding.alertname).shows_main_thread for finding in findings):
        restarted = {label for label, query in health.items() if query.restarted}
        thread = stages.run(main_thread) or MainThread()
        findings = _with_main_thread(findings, thread, restarted)
    worded = _in_words(findings, stages)
    said = {id(finding.facts): finding.reason for finding in worded}
    health = {label: _with_reason(query, said, stages) for label, query in health.items()}
    return Evaluation(worded, health, tuple(stages.errors.items()), flow)


def _in_words(findings: Sequence[Finding], stages: Stages) -> tuple[Finding, ...]:
    """The findings with their words; an error of ours there is reported as that of a rule is."""
    before = set(stages.errors)
    worded = [_with_words(finding, stages) for finding in findings]
    failed = tuple(name for name in stages.errors if name not in before)
    is_reported = any(finding.alertname == MONITORING_DEGRADED for finding in findings)
    if failed and not is_reported:
        worded.append(_with_words(rules_failed(failed), stages))
    return tuple(worded)


def _with_words(finding: Finding, stages: Stages) -> Finding:
    """The finding with its words; after an error of ours, its code must do."""
    try:
        words = say(finding)
    except Exception as error:  # noqa: BLE001 - the alert must still be sent
        stages.errors.setdefault(f"words of {finding.alertname}", error)
        code = finding.code.value
        words = Words(code, f"{finding.query}: {code}", cause=code)
    return replace(finding, words=words)


def _with_reason(health: QueryHealth, said: Mapping[int, str], stages: Stages) -> QueryHealth:
    """The health with its reason; mostly a finding has the same facts, and has said them."""
    if health.why is None:
        return health
    reason = said.get(id(health.why))
    if reason is None:
        reason = stages.run(reason_of, health.why)
    return replace(health, reason=health.why.code.value if reason is None else reason)


# -- one query --------------------------------------------------------------------------------


def _evaluate_query(context: RuleContext, stages: Stages) -> tuple[list[Finding], QueryHealth]:
    """Its findings, which an error in its health does not hide, and its health."""
    query, snapshot, ignore = context.query, context.snapshot, context.limits.ignore
    elsewhere = _is_reported_elsewhere(query, snapshot)
    found = [] if ignore else _run_rules(context, stages)
    worst = _worst(found)
    findings = [] if worst is None or elsewhere else _reported(context, worst, found, stages)
    health = stages.run(_health, context, worst, elsewhere=elsewhere)
    return findings, health or _not_evaluated(query, snapshot, ignore=ignore)


def _health(context: RuleContext, worst: Finding | None, *, elsewhere: bool) -> QueryHealth:
    limits = context.limits
    if worst is None:
        state = _healthy_state(context)
        why = _why_without_finding(context)
    else:
        state = _healthy_state(context) if worst.is_past else worst.state
        why = worst.facts
    evidence = None if worst is None else worst.evidence.query
    slow = None if evidence is None else evidence.slowness
    cause = None if slow is None else slow.cause
    return QueryHealth(
        state=state,
        why=why,
        window_seconds=context.window.seconds,
        ignored=limits.ignore or elsewhere,
        reported_elsewhere=elsewhere and not limits.ignore,
        expected_input_seconds=limits.expected_input_seconds,
        due_at=run_due_at(context.query.name, context.query, context.snapshot, context.now, limits),
        severity=worst.severity if worst is not None else None,
        restarted=is_restarted(context),
        slowness=slow,
        likely_cause="" if cause is None else likely_cause_text(cause),
    )


def _why_without_finding(context: RuleContext) -> Facts | None:
    """Why it failed, while it has time to recover; why it ended; or a note about its checkpoint."""
    query = context.query
    ended = query.failure
    if ended is not None and ended.failure is not None:
        return Failed(failure=ended.failure)
    if query.run.alive and context.snapshot.context is Context.JVM_GONE:
        return JvmEnded()
    return ids_went_back(query)


def _not_evaluated(query: Query, snapshot: Snapshot, *, ignore: bool) -> QueryHealth:
    """The health after an error of ours: it neither opens an alert nor ends one."""
    ended = query.failure
    elsewhere = _is_reported_elsewhere(query, snapshot)
    return QueryHealth(
        QueryState.STARTING if ended is None else QueryState.FAILED,
        NotEvaluated(failure=None if ended is None else ended.failure),
        ignored=ignore or elsewhere,
        reported_elsewhere=elsewhere and not ignore,
        is_unknown=True,
    )


def _is_reported_elsewhere(query: Query, snapshot: Snapshot) -> bool:
    """Whether another process on the same JVM reports it."""
    return query.run.reported_elsewhere or not snapshot.ownership.covers(query.run.session)


def _run_rules(context: RuleContext, stages: Stages) -> list[Finding]:
    """What the rules find, each run once; after a critical finding only independent ones matter."""
    found = []
    is_critical = False
    for rule in ORDER:
        if is_critical and rule not in INDEPENDENT_RULES:
            continue
        try:
            finding = rule(context)
        except Exception as error:  # noqa: BLE001 - the other rules must still run
            stages.note(rule, error)
            continue
        if finding is not None:
            found.append(finding)
            is_critical |= finding.severity is Severity.CRITICAL and not finding.is_past
    return found


def _worst(found: Sequence[Finding]) -> Finding | None:
    """The first critical finding, else the first; independent ones count only if they are first.

    One that is past counts only if there is no other.
    """
    worst = past = None
    for finding in found:
        if worst is not None and kind_of(finding.alertname).is_independent:
            continue
        if finding.is_past:
            past = finding
            continue
        if finding.severity is Severity.CRITICAL:
            return finding
        worst = worst or finding
    return worst or past


def _reported(
    context: RuleContext, worst: Finding, found: Sequence[Finding], stages: Stages
) -> list[Finding]:
    """The most severe finding, and the independent ones: flapping and data loss risk.

    Once the query flaps, a further failure is not reported, unless it is more severe or shares the
    cause of the whole driver.
    """
    independent = [
        finding
        for finding in found
        if kind_of(finding.alertname).is_independent and finding.alertname != worst.alertname
    ]
    is_own = worst.alertname == QUERY_FAILED and worst.shared is None
    is_covered = is_own and any(
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
    if query.run.ended is not None:
        outcomes = {Outcome.FAILED: QueryState.FAILED, Outcome.COMPLETED: QueryState.COMPLETED}
        return outcomes.get(query.run.ended.outcome, QueryState.STOPPED)
    if query.run.vanished_at is not None or context.snapshot.context is not Context.RUNNING:
        return QueryState.STOPPED
    if not query.run.activity_seen:
        return QueryState.STARTING
    if not _is_idle(context):
        return QueryState.RUNNING
    return QueryState.WAITING if query.run.holds_back else QueryState.IDLE


def _is_idle(context: RuleContext) -> bool:
    """Whether the query is proven idle for as long as Spark waits before it reports idleness."""
    idle_at, commit_at = context.query.run.last_idle_at, context.query.run.last_commit_at
    if context.query.run.in_flight is not None and context.query.run.in_flight.batch_id is not None:
        return False
    if idle_at is None or commit_at is None:
        return idle_at is not None
    return idle_at > commit_at and context.now - commit_at >= IDLE_AFTER_SECONDS


# -- absent queries ---------------------------------------------------------------------------


def _absent(snapshot: Snapshot, policy: Policy) -> dict[str, str]:
    """By label: the names of supervised and expected queries that no signal has ever seen."""
    seen, names = snapshot.labels(), {query.name for query in snapshot.queries}
    supervised = {label: label for label in snapshot.supervised if label not in seen}
    return supervised | {base_label(name): name for name in policy.expected if name not in names}


def _evaluate_absent(
    label: str, name: str, snapshot: Snapshot, now: float, policy: Policy
) -> tuple[Finding | None, QueryHealth]:
    finding = query_absent(label, name, snapshot, now, policy)
    limits = policy.limits(name)
    due_at = run_due_at(name, None, snapshot, now, limits)
    if finding is not None:
        return finding, QueryHealth(
            finding.state, finding.facts, severity=finding.severity, due_at=due_at
        )
    supervised = snapshot.supervised.get(label)
    why = NotSeenYet() if supervised is None else Restarting(why=supervised.failure)
    return None, QueryHealth(QueryState.STARTING, why, ignored=limits.ignore, due_at=due_at)


# -- slots and signals ------------------------------------------------------------------------

INCIDENT_OF_HOLDER = 3
"""So many queries that wait for the slots of one are one incident, that of the holder."""


def _page_holders(
    findings: list[Finding],
    health: dict[str, QueryHealth],
    is_silenced: Callable[[Finding], bool],
    snapshot: Snapshot,
) -> list[Finding]:
    """Report who holds the slots for which many wait, or one has waited for too long.

    Where many wait, none of them is reported by itself, unless it has an older problem. If nobody
    is notified of the holder, as it is ignored or silenced, each is: as critical if it has waited
    for too long.
    """
    holders = {finding.holder for finding in findings} - {""}
    waiting_for = waiting_by_holder(snapshot) if holders else {}
    raised = {(finding.query, finding.alertname): finding for finding in findings}
    for holder in sorted(holders):
        victims = [finding for finding in findings if finding.holder == holder]
        overdue = [victim for victim in victims if victim.pages_holder]
        watched = {label for label in waiting_for.get(holder, ()) if not health[label].ignored}
        waiting = watched | {victim.query for victim in victims}
        are_many = len(waiting) >= INCIDENT_OF_HOLDER
        if not are_many:
            victims, waiting = overdue, {victim.query for victim in overdue}
        if not victims:
            continue
        alert = slots_held(victims, waiting, raised)
        if _report_holder(alert, health, raised, is_silenced):
            covered = _covered(victims) if are_many else set()
            raised = {key: finding for key, finding in raised.items() if key not in covered}
        else:
            raised |= {
                (victim.query, victim.alertname): replace(victim, severity=Severity.CRITICAL)
                for victim in overdue
            }
    return list(raised.values())


def _covered(victims: Collection[Finding]) -> set[tuple[str, str]]:
    covered = (victim for victim in victims if not victim.facts.has_older_problem)
    return {(victim.query, victim.alertname) for victim in covered}


def _report_holder(
    alert: Finding,
    health: dict[str, QueryHealth],
    raised: dict[tuple[str, str], Finding],
    is_silenced: Callable[[Finding], bool],
) -> bool:
    """Add the finding of a holder, unless it is ignored; return whether somebody is notified."""
    own = health.get(alert.query)
    if own is None or own.ignored:
        return False
    raised[alert.query, alert.alertname] = alert
    if alert.severity is Severity.CRITICAL or own.severity is not Severity.CRITICAL:
        seen = replace(own, state=alert.state, why=alert.facts, severity=alert.severity)
        health[alert.query] = seen
    return not is_silenced(alert)


def _of_signals(
    snapshot: Snapshot, now: float, policy: Policy, findings: list[Finding], stages: Stages
) -> list[Finding]:
    """Problems of the signals, unless a finding already reports that the JVM does not answer."""
    problems = [stages.run(driver_down, snapshot, now, policy)]
    problems.append(stages.run(program_ended, snapshot, now, policy, findings))
    if snapshot.ownership.is_eldest:
        rules = (driver_memory, disk_filling, events_missing)
        problems += [stages.run(rule, snapshot, now, policy) for rule in rules]
        is_reported = any(finding.shared is SharedCause.JVM_SILENT for finding in findings)
        if stages.errors or not is_reported:
            errors = stages.errors
            degraded = stages.run(monitoring_degraded, snapshot, now, policy, tuple(errors))
            problems.append(degraded or (rules_failed(tuple(errors)) if errors else None))
    return [finding for finding in problems if finding is not None]


OUT_OF_MEMORY = "OutOfMemoryError"


def _with_memory(findings: Sequence[Finding], snapshot: Snapshot, now: float) -> list[Finding]:
    """The findings with the driver's memory where it is why something died."""
    return [
        _adding(finding, memory=memory_of(snapshot, now))
        if _died_of_memory(finding, snapshot, now)
        else finding
        for finding in findings
    ]


def _died_of_memory(finding: Finding, snapshot: Snapshot, now: float) -> bool:
    if isinstance(finding.facts, JvmEnded):
        return memory_of(snapshot, now).is_scarce
    failure = finding.failure
    return failure is not None and OUT_OF_MEMORY in failure.exception


# -- findings of one cause ----------------------------------------------------------------------

MAX_LISTED = 10
"""The most unnamed queries that one alert lists, the newest first."""
MAX_UNHEALTHY = 20
"""The most unhealthy queries that each alert lists: all would be 25 KB for each of a thousand."""


def gather(
    findings: Sequence[Finding], labels: Sequence[str], unnamed: Collection[str] = ()
) -> list[Finding]:
    """Merge findings that share a cause; add to each how many queries of the driver are healthy.

    With only one query in the driver, its finding stays its own and has no such line; neither has
    an alert that the JVM or the main program has ended. A stopped SparkContext is a shared cause
    even for one query; a JVM that does not answer is one only if several queries are stalled.
    Queries without a name (``unnamed`` are their labels) share one finding for each alert name.
    """
    silent = [finding for finding in findings if finding.shared is SharedCause.JVM_SILENT]
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        subject = finding.query
        cause = finding.shared_cause if len(labels) > 1 else ""
        if cause and (finding.shared is not SharedCause.JVM_SILENT or len(silent) > 1):
            subject = WHOLE_DRIVER
        elif subject in unnamed:
            subject = UNNAMED
            cause = ""
        groups.setdefault((finding.alertname, subject, cause), []).append(finding)
    driver = _driver_evidence(findings, labels)
    merged = []
    for (_, subject, _), members in groups.items():
        finding = members[0]
        if subject != finding.query:
            finding = _of_unnamed(members) if subject == UNNAMED else _of_driver(members)
        merged.append(finding if len(labels) == 1 else _with_driver(finding, driver))
    return merged


def _driver_evidence(findings: Sequence[Finding], labels: Sequence[str]) -> DriverEvidence:
    # Those that wait for the slots of another one may have no finding of their own.
    waiting = {query for finding in findings for query in finding.facts.waiting}
    unhealthy = sorted(waiting | {finding.query for finding in findings} - {WHOLE_DRIVER})
    return DriverEvidence(len(labels), len(unhealthy), tuple(unhealthy[:MAX_UNHEALTHY]))


def _with_driver(finding: Finding, driver: DriverEvidence) -> Finding:
    is_end = finding.alertname == DRIVER_DOWN or finding.shared is SharedCause.PROGRAM_ENDED
    return finding if is_end else _adding(finding, driver=driver)


def _adding(finding: Finding, **evidence: Any) -> Finding:
    """The finding with more evidence."""
    return replace(finding, evidence=replace(finding.evidence, **evidence))


def _of_driver(members: list[Finding]) -> Finding:
    first = members[0]
    assert first.shared is not None, "only a shared cause merges findings of queries"
    found = ShareCause(cause=first.shared, members=tuple(map(_member, members)))
    return replace(first, query=WHOLE_DRIVER, facts=found, evidence=NO_EVIDENCE)


def _member(finding: Finding) -> Member:
    # Before they are merged, findings are about one query each.
    return Member(finding.query, finding.facts)


def _of_unnamed(members: list[Finding]) -> Finding:
    """The newest of the most severe findings; it lists the others."""
    critical = [finding for finding in members if finding.severity is Severity.CRITICAL]
    newest = (critical or members)[-1]
    found = Unnamed(
        newest=_member(newest),
        others=tuple(_member(member) for member in reversed(members[-MAX_LISTED:])),
        count=len(members),
    )
    labels = tuple(member.query for member in members)
    return replace(newest, query=UNNAMED, facts=found, members=labels)


def _with_main_thread(
    findings: Sequence[Finding], thread: MainThread, restarted: Collection[str]
) -> list[Finding]:
    """The findings with what the main thread does; ``supervise`` handles queries ``restarted``."""
    return [
        _adding(
            finding,
            main_thread=thread.text,
            ends_driver=thread.awaits_failure
            and finding.alertname in ENDS
            and not set(finding.members or (finding.query,)).issubset(restarted),
        )
        if kind_of(finding.alertname).shows_main_thread
        and finding.shared is not SharedCause.PROGRAM_ENDED
        else finding
        for finding in findings
    ]


# -- starving ---------------------------------------------------------------------------------
# Which queries get no data because another one is broken.
#
# A place is dry while all its writers are broken, or cut off themselves; writers that ended as
# intended do not count. A query is cut off if a place that it reads is dry.

RETIRED = frozenset({QueryState.STOPPED, QueryState.COMPLETED})
MAX_TRACED = 100
"""For how many findings of one evaluation the queries downstream are listed."""
Health = Mapping[str, QueryHealth]


def _flow(snapshot: Snapshot, labels: Iterable[str], policy: Policy) -> Flow:
    """The graph of all queries; the settings may declare the places of absent ones."""
    nodes = [
        Node(query.label, query.base_name, query.checkpoint.datasets) for query in snapshot.queries
    ]
    absent = {base_label(name): name for name in policy.expected}
    seen = {node.label for node in nodes}
    nodes += [Node(label, absent.get(label, label)) for label in labels if label not in seen]
    return flow_of(tuple(nodes), policy.declared)


def _trace_flow(
    findings: Sequence[Finding], health: dict[str, QueryHealth], flow: Flow
) -> list[Finding]:
    """The findings with the evidence ``downstream`` and ``upstream``.

    The finding of a broken query lists the queries that it cuts off; that of a query which is cut
    off itself names the broken one. The health of a starving query has the reason ``upstream bronze
    failed``: it is idle, without a problem of its own, and cut off by broken queries, directly or
    through queries that are idle too.
    """
    broken = _in_state(health, NOT_WORKING)
    if not flow.downstream or not broken:
        return list(findings)
    idle = {label for label, query in health.items() if query.state is QueryState.IDLE}
    # What a query that ended as intended has written is as dry as that of a broken one.
    dry = _in_state(health, NOT_WORKING | RETIRED)
    causes = cut_off(broken, dry, flow)
    for label, cause in cut_off(broken, dry, flow, idle).items():
        if label in idle and health[label].why is None:
            why = Upstream(query=cause, state=health[cause].state)
            health[label] = replace(health[label], why=why)
    traced = {finding.query for finding in findings if finding.state in NOT_WORKING}
    traced = set(sorted(traced)[:MAX_TRACED])
    extended = []
    for finding in findings:
        query = finding.query
        readers = sorted(cut_off([query], dry, flow)) if query in traced else []
        upstream = None
        if query in causes:
            upstream = Upstream(query=causes[query], state=health[causes[query]].state)
        extended.append(_adding(finding, downstream=tuple(readers), upstream=upstream))
    return extended


def retired(health: Health) -> frozenset[str]:
    """The labels of queries that ended as intended."""
    return frozenset(_in_state(health, RETIRED))


def _in_state(health: Health, states: Collection[QueryState]) -> list[str]:
    return [label for label, query in health.items() if query.state in states]
