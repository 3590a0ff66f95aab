"""StreamingWatermarkStuck: rows arrive, the watermark stands still.

State then grows and results wait for ever. A join whose one side brings no rows waits
rightly: Spark's watermark is that of the slowest source.
"""

from __future__ import annotations

from ..case import Case
from ..evidence import evidence
from ..finding import Finding, Severity, State

NAME = "StreamingWatermarkStuck"
MIN_BATCHES = 3


def check(case: Case) -> Finding | None:
    """Fire when every source has brought rows and the watermark stood for the trend window."""
    watermark, progress = case.query.trends.watermark, case.query.progress
    if not case.is_running or not case.batches_come or watermark is None or progress is None:
        return None
    stood = case.watched_since(watermark.since)
    if watermark.batches < MIN_BATCHES or stood <= case.trend_seconds:
        return None
    if len(watermark.fed) < len(progress.sources):
        return None
    reason = f"the watermark has stood for {stood:.0f} s and {watermark.batches} batches with rows"
    return Finding(
        alertname=NAME,
        query=case.label,
        severity=Severity.WARNING,
        state=State.WATERMARK_STUCK,
        reason=reason,
        summary=f"{case.label} makes no event-time progress: {reason}",
        evidence=evidence(case),
    )
