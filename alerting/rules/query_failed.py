"""QueryFailed: a run ended with an exception, and no later run has shown life."""

from __future__ import annotations

from ..case import Case
from ..evidence import evidence
from ..finding import Finding, Severity, State

NAME = "QueryFailed"


def check(case: Case) -> Finding | None:
    """Fire at once on the first witness of the exception; hold until a new run commits."""
    ended = case.query.failure
    if ended is None or ended.failure is None:
        return None
    return Finding(
        alertname=NAME,
        query=case.label,
        severity=Severity.CRITICAL,
        state=State.FAILED,
        reason=ended.failure.reason,
        summary=f"Streaming query {case.label} is dead: {ended.failure.error_class}",
        evidence={
            **evidence(case),
            "error_class": ended.failure.error_class,
            "error_message": ended.failure.message,
            "seen_by": ended.witness,
        },
    )
