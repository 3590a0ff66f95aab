"""StreamingRowsDropped: every batch with rows drops a notable part of them as late.

A few late rows are what a watermark is for, in each batch or now and then.
"""

from __future__ import annotations

from ...core.states import QueryState
from ...core.text import duration
from ...listener.events import Progress
from ..evidence import report
from ..finding import Finding, Severity
from ..rule_context import RuleContext

NAME = "StreamingRowsDropped"
MIN_BATCHES = 3


def check(context: RuleContext) -> Finding | None:
    """Fire when each batch with rows dropped a notable part for the trend window."""
    late, progress = context.query.trends.late, context.query.progress
    if not context.commits or late is None or progress is None:
        return None
    seconds = context.watched_since(late.since)
    if late.batches < MIN_BATCHES or seconds <= context.trend_seconds:
        return None
    dropped = f"each of the last {late.batches} batches with rows dropped late ones"
    count = f" ({late.rows}, counted after aggregation)" if late.rows else ""
    reason = f"{dropped}, for {seconds:.0f} s{count}{_newest(progress)}"
    return report(
        context, NAME, Severity.WARNING, QueryState.LAGGING, reason, does="drops late rows"
    )


def _newest(progress: Progress) -> str:
    """How far the newest row is behind the watermark, if it is."""
    watermark, newest = progress.watermark_timestamp, progress.event_time_max
    if watermark is None or newest is None or newest >= watermark:
        return ""
    return f"; the newest event time is {duration(watermark - newest)} behind the watermark"
