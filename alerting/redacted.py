"""Remove secrets from an evaluation before pages and the status page use it. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from ..core.redaction import WITHHELD, Redactor, redact
from .evaluate import Evaluation, QueryHealth
from .finding import Finding

ERROR_CLASS = "error_class"
"""The evidence that is kept when everything else must be withheld."""


def redacted(evaluation: Evaluation, redactor: Redactor) -> Evaluation:
    """Redact every text of all findings and of the health; labels stay, since they identify."""
    findings = tuple(_finding(finding, redactor) for finding in evaluation.findings)
    health = {label: _health(one, redactor) for label, one in evaluation.health.items()}
    return replace(evaluation, findings=findings, health=health)


def _finding(finding: Finding, redactor: Redactor) -> Finding:
    evidence = {name: redactor.text(text) for name, text in finding.evidence.items()}
    reason = redactor.text(finding.reason)
    if evidence.get(ERROR_CLASS) == WITHHELD:
        # A page must give a cause; the class was already redacted by pattern on arrival.
        evidence[ERROR_CLASS] = redact(finding.evidence[ERROR_CLASS])
        reason = f"{evidence[ERROR_CLASS]}: {WITHHELD}"
    return replace(
        finding,
        reason=reason,
        summary=redactor.text(finding.summary),
        evidence=evidence,
        cause=redactor.text(finding.cause),
    )


def _health(health: QueryHealth, redactor: Redactor) -> QueryHealth:
    return replace(health, reason=redactor.text(health.reason)) if health.reason else health
