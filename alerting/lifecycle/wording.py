"""Turns a finding into an alert. Pure."""

from __future__ import annotations

from ..alert import Alert
from ..details import description, ordered
from ..finding import Finding
from ..headline import headline
from .guidance import Guidance


def alert_of(finding: Finding, app: str, guidance: Guidance, wall: float) -> Alert:
    """The alert of a finding; it begins at Unix time ``wall``."""
    summary = headline(finding, app)
    evidence = ordered({**guidance.steps(finding.alertname), **finding.evidence})
    return Alert(
        labels={
            "alertname": finding.alertname,
            "app": app,
            "query": finding.query,
            "severity": finding.severity.value,
        },
        annotations={
            "summary": summary,
            "description": description(summary, finding.reason, evidence),
            "reason": finding.reason,
            **guidance.links(finding.alertname, app, finding.query),
            **evidence,
        },
        starts_at=wall,
        members=finding.members,
    )
