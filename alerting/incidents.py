"""Group findings into incidents: one for each cause, with the health of the other queries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from ..core.states import QueryState
from ..core.text import listed
from ..listener.state.flow import Flow
from ..listener.state.identity import UNNAMED
from .alert_text import several_do
from .finding import WHOLE_DRIVER, Finding, QueryHealth, Severity
from .rules import driver_down
from .rules.query_stalled import SHARED_SILENCE

# -- incidents --------------------------------------------------------------------------------


MAX_LISTED = 10
"""The most unnamed queries that one alert lists, the newest first."""
MAX_SIBLINGS = 20
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
    siblings = {"siblings": _siblings(unhealthy, labels)}
    return tuple(
        finding
        if finding.alertname == driver_down.NAME
        else replace(finding, evidence={**siblings, **finding.evidence})
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
        members=tuple(one.query for one in members),
    )
    count = len(members)
    if count == 1:
        return finding
    listed = [f"{one.query}: {one.reason}" for one in reversed(members[-MAX_LISTED:])]
    if count > MAX_LISTED:
        listed.append(f"and {count - MAX_LISTED} more")
    return replace(
        finding,
        reason=f"{count} queries without a name, the newest {finding.reason}",
        summary=f"{count} queries without a name, the newest {newest.summary}",
        evidence={"queries": "\n".join(listed), **newest.evidence},
    )


def _siblings(unhealthy: Sequence[str], labels: Sequence[str]) -> str:
    """How many of the driver's queries are healthy: "7 of 8 queries healthy; unhealthy: bronze"."""
    text = f"{len(labels) - len(unhealthy)} of {len(labels)} queries healthy"
    return f"{text}; unhealthy: {listed(unhealthy, MAX_SIBLINGS)}" if unhealthy else text


# -- starving ---------------------------------------------------------------------------------
# Which queries get no data because another one is broken.
#
# A place is dry while all its writers are broken, or cut off themselves; writers that ended as
# intended do not count. A query is cut off if a place that it reads is dry.


BROKEN = frozenset(
    {
        QueryState.FAILED,
        QueryState.MISSING,
        QueryState.STOPPED_UNEXPECTEDLY,
        QueryState.STALLED,
    }
)
RETIRED = frozenset({QueryState.STOPPED, QueryState.COMPLETED})
DOWNSTREAM, UPSTREAM = "downstream", "upstream"
"""Names of the evidence."""
MAX_TRACED = 100
"""For how many findings of one evaluation the queries downstream are listed."""

Health = Mapping[str, QueryHealth]


def with_upstream(health: Health, flow: Flow) -> dict[str, QueryHealth]:
    """The health with the reason ``upstream bronze failed`` for each starving query.

    A query starves if it is idle, without a problem of its own, and cut off by broken queries,
    directly or through queries that are idle too.
    """
    broken = [label for label, one in health.items() if one.state in BROKEN]
    idle = {label for label, one in health.items() if one.state is QueryState.IDLE}
    causes = cut_off(broken, health, flow, passes=idle.__contains__)
    return {
        label: replace(one, reason=reason_of(causes[label], health))
        if label in causes and label in idle and not one.reason
        else one
        for label, one in health.items()
    }


def with_neighbours(findings: Sequence[Finding], health: Health, flow: Flow) -> list[Finding]:
    """The findings with the evidence ``downstream`` and ``upstream``.

    The finding of a broken query lists the queries that it cuts off. That of a query which is cut
    off itself names the broken one.
    """
    if not flow.downstream:
        return list(findings)
    broken = [label for label, one in health.items() if one.state in BROKEN]
    causes = cut_off(broken, health, flow)
    traced = {one.query for one in findings if one.state in BROKEN}
    listing = {label: _downstream(label, health, flow) for label in sorted(traced)[:MAX_TRACED]}
    return [_with_evidence(one, listing.get(one.query, ""), causes, health) for one in findings]


def cut_off(
    roots: Sequence[str],
    health: Health,
    flow: Flow,
    passes: Callable[[str], bool] = lambda _label: True,
) -> dict[str, str]:
    """By label: the root that cuts a query off, the nearest first. Roots are not among them.

    ``passes`` says through which queries the search goes on.
    """
    found: dict[str, str] = {}
    dry = {label for label, one in health.items() if one.state in BROKEN}
    waiting = deque(roots)
    while waiting:
        writer = waiting.popleft()
        for reader in flow.downstream.get(writer, ()):
            known = health.get(reader)
            if reader in found or reader in dry or known is None or known.state in RETIRED:
                continue
            if not any(writer in fed and _is_dry(fed, dry, health) for fed in flow.feeds[reader]):
                continue
            found[reader] = found.get(writer, writer)
            if passes(reader):
                dry.add(reader)
                waiting.append(reader)
    return found


def _is_dry(writers: Sequence[str], dry: Collection[str], health: Health) -> bool:
    return all(one in dry or health[one].state in RETIRED for one in writers)


def retired(health: Health) -> frozenset[str]:
    """The labels of queries that ended as intended."""
    return frozenset(label for label, one in health.items() if one.state in RETIRED)


def reason_of(root: str, health: Health) -> str:
    """Such as ``upstream bronze failed``."""
    return f"upstream {_problem_of(root, health)}"


def _problem_of(root: str, health: Health) -> str:
    return f"{root} {_SAYS[health[root].state]}"


_SAYS = {
    QueryState.FAILED: "failed",
    QueryState.MISSING: "is missing",
    QueryState.STOPPED_UNEXPECTEDLY: "stopped",
    QueryState.STALLED: "is stalled",
}


def _downstream(label: str, health: Health, flow: Flow) -> str:
    readers = sorted(cut_off([label], health, flow))
    if not readers:
        return ""
    verb = "gets" if len(readers) == 1 else "get"
    return f"{listed(readers)} {verb} no data from it"


def _with_evidence(
    finding: Finding, downstream: str, causes: Mapping[str, str], health: Health
) -> Finding:
    root = causes.get(finding.query)
    upstream = "" if root is None else _problem_of(root, health)
    added = {DOWNSTREAM: downstream, UPSTREAM: upstream}
    known = {name: text for name, text in added.items() if text}
    return replace(finding, evidence={**finding.evidence, **known}) if known else finding
