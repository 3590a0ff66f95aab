"""StreamingQueryFallingBehind: batches outlast their trigger interval, and take longer and longer.

The window of a query follows its batches, so a slow decay never stalls it; and a query that reads
all there is in each batch has no lag in offsets. Batches that outlast the interval without growing
are late by that much and no more. Batches grow with the input of the hour: what they took a day ago
counts, and without an interval lag must rise, too. Of availableNow in a loop, the runs count.
"""

from __future__ import annotations

from statistics import median

from ...core.states import QueryState
from ..evidence import report
from ..finding import Finding, Severity
from ..rule_context import RuleContext
from .query_lagging import rising

NAME = "StreamingQueryFallingBehind"
MIN_BATCHES = 5
NOTABLE_GROWTH = 1.5
"""Growth beyond that of the same hours a day ago, so the time of day does not explain it."""
MUCH_LONGER = 3.0
"""Growth within a day by the time of day alone is smaller, as a rule."""


def check(context: RuleContext) -> Finding | None:
    """Fire when each batch outlasted the interval for the trend window, and they grow."""
    query, trends = context.query, context.query.trends
    # The trigger of a run that has just begun is not known yet.
    is_loop = query.trigger.ends_by_itself if query.trigger is not None else trends.runs is not None
    long = trends.runs if is_loop else trends.long
    if long is None or not (context.is_running or context.is_between_runs):
        return None
    seconds = context.watched_since(long.since)
    if long.batches < MIN_BATCHES or seconds <= context.trend_seconds:
        return None
    first, newest, day_ago = median(long.first), median(long.newest), query.day_ago_seconds
    much_longer = newest > MUCH_LONGER * (day_ago or newest)
    if day_ago is None or is_loop:
        grows = newest >= max(MUCH_LONGER * first, NOTABLE_GROWTH * (day_ago or 0.0))
    else:
        grows = much_longer or newest >= NOTABLE_GROWTH * max(first, day_ago)
    has_interval = query.trigger is not None and query.trigger.interval_seconds
    if not grows or not (is_loop or has_interval or much_longer or _lag_rises(context)):
        return None
    before = f"{first:.0f} s at first"
    if day_ago is not None and not is_loop:
        before = f"at most {day_ago:.0f} s a day ago"
    took = f"each of the last {long.batches} {'runs' if is_loop else 'batches'} took longer"
    reason = f"{took} than {long.limit:g} s, for {seconds:.0f} s: {before}, {newest:.0f} s now"
    return report(context, NAME, Severity.WARNING, QueryState.SLOW, reason, does="falls behind")


def _lag_rises(context: RuleContext) -> bool:
    rises = context.query.trends.rises.values()
    return any(rising(context, points, allowed=0.0) for points in rises)
