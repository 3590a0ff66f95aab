"""A finding as an alert tells it. Pure."""

from __future__ import annotations

from ..alert import Alert
from ..finding import Finding


def alert_of(finding: Finding, app: str, runbook_base_url: str, wall: float) -> Alert:
    """An alert that begins at Unix time ``wall``."""
    return Alert(
        labels={
            "alertname": finding.alertname,
            "app": app,
            "query": finding.query,
            "severity": finding.severity.value,
        },
        annotations={
            "summary": finding.summary,
            "description": describe(finding),
            "reason": finding.reason,
            "runbook_url": f"{runbook_base_url.rstrip('/')}/{finding.alertname}.md",
            **finding.evidence,
        },
        starts_at=wall,
        members=finding.members,
    )


def describe(finding: Finding) -> str:
    """The whole story in one text: the reason, then the evidence line by line."""
    lines = [f"{name}: {text}" for name, text in finding.evidence.items()]
    return "\n".join([finding.reason, *lines])
