"""StreamingOffsetsStalled: batches come and go, offsets do not move, and data waits.

Burrow's rule for a stalled partition: the same end offset again and again, behind the
source's latest one every time.
"""

from __future__ import annotations

from ...listener.trends import SourceTrend
from ..evidence import evidence
from ..finding import Finding, QueryState, Severity
from ..rule_context import RuleContext

NAME = "StreamingOffsetsStalled"
MIN_BATCHES = 3


def check(context: RuleContext) -> Finding | None:
    """Fire when a partition stands for the window while batches still come."""
    if not context.is_running or not context.batches_come:
        return None
    stalled = [
        (trend, partitions)
        for trend in context.query.trends.sources
        if trend.stuck and (partitions := _stuck(trend, context))
    ]
    if not stalled:
        return None
    reason = "; ".join(_stall_reason(trend, partitions) for trend, partitions in stalled)
    reason = f"{reason}, while batches come and go and data waits"
    return Finding(
        alertname=NAME,
        query=context.label,
        severity=Severity.CRITICAL,
        state=QueryState.STALLED,
        reason=reason,
        summary=f"{context.label} does not advance: {reason}",
        evidence=evidence(context),
    )


def _stuck(trend: SourceTrend, context: RuleContext) -> dict[str, float]:
    """Seconds that each stalled partition has stood."""
    return {
        partition: stood
        for partition, stuck in trend.stuck.items()
        if stuck.batches >= MIN_BATCHES
        and (stood := context.watched_since(stuck.since)) > context.window.seconds
    }


def _stall_reason(trend: SourceTrend, partitions: dict[str, float]) -> str:
    names = ", ".join(sorted(partitions)[:3]) or "its offset"
    more = f" and {len(partitions) - 3} more" if len(partitions) > 3 else ""  # noqa: PLR2004 - as above
    what = f"{names}{more}".strip() or "its offset"
    return f"{trend.description}: {what} stands since {max(partitions.values()):.0f} s"
