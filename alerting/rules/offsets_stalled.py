"""StreamingOffsetsStalled: batches run, but offsets do not advance although data is unread.

This is Burrow's rule for a stalled partition: every batch has the same end offset, and it is
always behind the latest offset of the source.
"""

from __future__ import annotations

from ...core.states import QueryState
from ...core.text import listed
from ...listener.state.trends import SourceTrend
from ..evidence import report
from ..finding import Finding, Severity
from ..rule_context import RuleContext

NAME = "StreamingOffsetsStalled"
MAX_NAMED = 3
MIN_BATCHES = 3


def check(context: RuleContext) -> Finding | None:
    """Fire when a partition has not advanced for the window while batches still run."""
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
    reason = f"{reason}, although batches run and data is unread"
    return report(
        context, NAME, Severity.CRITICAL, QueryState.STALLED, reason, does="does not advance"
    )


def _stuck(trend: SourceTrend, context: RuleContext) -> dict[str, float]:
    """Seconds for which each stalled partition has not advanced."""
    return {
        partition: seconds
        for partition, stuck in trend.stuck.items()
        if stuck.batches >= MIN_BATCHES
        and (seconds := context.watched_since(stuck.since)) > context.window.seconds
    }


def _stall_reason(trend: SourceTrend, partitions: dict[str, float]) -> str:
    names = listed(sorted(partitions), MAX_NAMED) or "its offset"
    have = "has" if len(partitions) == 1 else "have"
    longest = max(partitions.values())
    return f"{trend.description}: {names} {have} not advanced for {longest:.0f} s"
