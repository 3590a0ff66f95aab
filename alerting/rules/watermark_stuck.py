"""StreamingWatermarkStuck: rows arrive, but the watermark does not advance.

State then grows and results are never emitted. A join with no rows on one side does not fire:
Spark's watermark is that of the slowest source.
"""

from __future__ import annotations

from ...core.states import QueryState
from ..evidence import report
from ..finding import Finding, Severity
from ..rule_context import RuleContext

NAME = "StreamingWatermarkStuck"
MIN_BATCHES = 3


def check(context: RuleContext) -> Finding | None:
    """Fire when every source had rows and the watermark did not advance for the trend window."""
    watermark, progress = context.query.trends.watermark, context.query.progress
    if not context.is_running or not context.batches_come or watermark is None or progress is None:
        return None
    seconds = context.watched_since(watermark.since)
    if watermark.batches < MIN_BATCHES or seconds <= context.trend_seconds:
        return None
    if len(watermark.fed) < len(progress.sources):
        return None
    rows = f"{watermark.batches} batches with rows"
    reason = f"the watermark has not advanced for {seconds:.0f} s and {rows}"
    return report(
        context,
        NAME,
        Severity.WARNING,
        QueryState.WATERMARK_STUCK,
        reason,
        does="makes no event-time progress",
    )
