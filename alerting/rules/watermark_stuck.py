"""StreamingWatermarkStuck: rows arrive, the watermark stands still.

State then grows and results wait for ever. A join whose one side brings no rows waits
rightly: Spark's watermark is that of the slowest source.
"""

from __future__ import annotations

from ..evidence import evidence
from ..finding import Finding, QueryState, Severity
from ..rule_context import RuleContext

NAME = "StreamingWatermarkStuck"
MIN_BATCHES = 3


def check(context: RuleContext) -> Finding | None:
    """Fire when every source has brought rows and the watermark stood for the trend window."""
    watermark, progress = context.query.trends.watermark, context.query.progress
    if not context.is_running or not context.batches_come or watermark is None or progress is None:
        return None
    stood = context.watched_since(watermark.since)
    if watermark.batches < MIN_BATCHES or stood <= context.trend_seconds:
        return None
    if len(watermark.fed) < len(progress.sources):
        return None
    reason = f"the watermark has stood for {stood:.0f} s and {watermark.batches} batches with rows"
    return Finding(
        alertname=NAME,
        query=context.label,
        severity=Severity.WARNING,
        state=QueryState.WATERMARK_STUCK,
        reason=reason,
        summary=f"{context.label} makes no event-time progress: {reason}",
        evidence=evidence(context),
    )
