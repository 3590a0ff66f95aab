"""Where the job's main thread is while a query is down or stuck: why it is not restarted. Pure."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from .evaluate import Evaluation
from .finding import Finding
from .rules import query_failed, query_stalled, query_stopped

ENDED_OR_STUCK = frozenset({query_failed.NAME, query_stopped.NAME, query_stalled.NAME})
EVIDENCE = "main_thread"


def with_main_thread(evaluation: Evaluation, main_thread: Callable[[], str]) -> Evaluation:
    """Add the evidence ``main_thread``; read it at most once, and only if a finding needs it."""
    if not any(map(_needs_it, evaluation.findings)):
        return evaluation
    text = main_thread()
    if not text:
        return evaluation
    findings = tuple(
        replace(one, evidence={**one.evidence, EVIDENCE: text}) if _needs_it(one) else one
        for one in evaluation.findings
    )
    return replace(evaluation, findings=findings)


def _needs_it(finding: Finding) -> bool:
    return finding.alertname in ENDED_OR_STUCK
