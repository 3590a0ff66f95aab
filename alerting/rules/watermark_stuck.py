"""StreamingWatermarkStuck: the watermark does not advance although newer event times were read.

State then grows and results are never emitted. A watermark in the future is stuck until the clock
reaches it, and all honest rows are late. Spark's watermark is that of the slowest source: a join
with no rows on one side does not fire, nor one that waits for a side as it did before.
"""

from __future__ import annotations

from ...core.states import QueryState
from ...core.text import duration, utc
from ...listener.events import Progress
from ...listener.state.trends import Watermark
from ..evidence import report
from ..finding import Finding, Severity
from ..rule_context import RuleContext

NAME = "StreamingWatermarkStuck"
MIN_BATCHES = 3
END_OF_9999 = 253_402_300_800.0
"""Python's calendar ends there."""


def check(context: RuleContext) -> Finding | None:
    """Fire when every source had rows and the watermark should have advanced for the window."""
    watermark, progress = context.query.trends.watermark, context.query.progress
    if not context.commits or watermark is None or progress is None:
        return None
    if watermark.since is None or watermark.batches < MIN_BATCHES:
        return None
    seconds = context.watched_since(watermark.since)
    if seconds <= context.trend_seconds or not _all_come(watermark, progress, context):
        return None
    ahead = watermark.timestamp - (progress.timestamp or watermark.timestamp)
    # That of several sources may wait for one of them, as it did before.
    may_wait = len(progress.sources) > 1 and watermark.timestamp > 0 >= ahead
    if may_wait and seconds <= sum(watermark.stood):
        return None
    reason = _in_future(watermark, ahead) if ahead > 0 else _does_not_advance(watermark, seconds)
    return report(
        context,
        NAME,
        Severity.WARNING,
        QueryState.WATERMARK_STUCK,
        reason,
        does="makes no event-time progress",
    )


def _all_come(watermark: Watermark, progress: Progress, context: RuleContext) -> bool:
    """Whether every source had rows within the trend window."""
    return len(watermark.fed) == len(progress.sources) and all(
        context.watched_since(at) <= context.trend_seconds for at in watermark.fed.values()
    )


def _does_not_advance(watermark: Watermark, seconds: float) -> str:
    return (
        f"the watermark has not advanced for {seconds:.0f} s and {watermark.batches} batches "
        "with rows, although newer event times were read"
    )


def _in_future(watermark: Watermark, ahead: float) -> str:
    at = utc(watermark.timestamp) if watermark.timestamp < END_OF_9999 else "a year after 9999"
    return (
        f"the watermark is at {at}, {duration(ahead)} in the future: rows "
        f"before it are late, and {watermark.late_rows} were dropped"
    )
