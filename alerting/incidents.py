"""Findings as incidents: one for each cause, and how the rest of the driver fares. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from .finding import WHOLE_DRIVER, Finding


def gather(findings: Sequence[Finding], labels: Sequence[str]) -> tuple[Finding, ...]:
    """Make one finding of those that share a cause; tell each how many queries are well.

    In a driver of one query it stays that query's. It depends on the driver, not on how
    many fire: else the first would be told twice.
    """
    sick = sorted({finding.query for finding in findings} - {WHOLE_DRIVER})
    shared: dict[tuple[str, str], list[Finding]] = {}
    told: list[Finding] = []
    for finding in findings:
        if finding.cause and len(labels) > 1:
            shared.setdefault((finding.alertname, finding.cause), []).append(finding)
        else:
            told.append(finding)
    told += [_incident(members) for members in shared.values()]
    text = _siblings(sick, labels)
    return tuple(
        replace(finding, evidence={"siblings": text, **finding.evidence}) for finding in told
    )


def _incident(members: list[Finding]) -> Finding:
    first = members[0]
    names = ", ".join(sorted(finding.query for finding in members))
    count = f"{len(members)} streaming queries" if len(members) > 1 else "1 streaming query"
    return replace(
        first,
        query=WHOLE_DRIVER,
        reason=f"{first.cause}: {names}",
        summary=f"{count} of one driver: {first.cause}",
        evidence={
            "queries": "\n".join(f"{finding.query}: {finding.reason}" for finding in members)
        },
    )


def _siblings(sick: Sequence[str], labels: Sequence[str]) -> str:
    """How many of the driver's queries are well: "7 of 8 queries healthy; not: bronze"."""
    text = f"{len(labels) - len(sick)} of {len(labels)} queries healthy"
    return f"{text}; not: {', '.join(sick)}" if sick else text
