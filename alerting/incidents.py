"""Group findings into incidents: one for each cause, with the health of the other queries. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from ..listener.labels import UNNAMED
from .finding import WHOLE_DRIVER, Finding, Severity
from .headline import several_do
from .rules import driver_down
from .rules.query_stalled import SHARED_SILENCE

MAX_LISTED = 10
"""The most unnamed queries that one alert lists, the newest first."""


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
    """How many of the driver's queries are healthy: "7 of 8 queries healthy; not: bronze"."""
    text = f"{len(labels) - len(unhealthy)} of {len(labels)} queries healthy"
    return f"{text}; not: {', '.join(unhealthy)}" if unhealthy else text
