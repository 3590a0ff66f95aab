"""StreamingQueryFallingBehind: batches outlast their trigger interval, and take longer and longer.

The window of a query follows its batches, so a slow decay never stalls it; and a query that reads
all there is in each batch has no lag in offsets. Batches that outlast the interval without growing
are late by that much and no more. Without an interval, batches grow with the
input of the hour: then lag must rise, too.
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
GROWTH_IN_A_DAY = 3.0


def check(context: RuleContext) -> Finding | None:
    """Fire when each batch outlasted the interval for the trend window, and they grow."""
    query, long = context.query, context.query.trends.long
    if not context.is_running or long is None or query.loop_began is not None:
        return None
    seconds = context.watched_since(long.since)
    if long.batches < MIN_BATCHES or seconds <= context.trend_seconds:
        return None
    has_interval = query.trigger is not None and query.trigger.interval_seconds
    rises = query.trends.rises.values()
    if not has_interval and not any(rising(context, points, allowed=0.0) for points in rises):
        return None
    first, newest = median(long.first), median(long.newest)
    if newest >= NOTABLE_GROWTH * first:
        before = f"{first:.0f} s at first"
    elif newest > GROWTH_IN_A_DAY * (query.day_ago_seconds or newest):
        before = f"at most {query.day_ago_seconds:.0f} s a day ago"
    else:
        return None
    took = f"each of the last {long.batches} batches took longer than {long.limit:g} s"
    reason = f"{took}, for {seconds:.0f} s: {before}, {newest:.0f} s now"
    return report(context, NAME, Severity.WARNING, QueryState.SLOW, reason, does="falls behind")
