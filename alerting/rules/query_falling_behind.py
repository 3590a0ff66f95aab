"""StreamingQueryFallingBehind: batches outlast their trigger interval, and take longer and longer.

The window of a query follows its batches, so a slow decay never stalls it; and a query that reads
all there is in each batch has no lag in offsets. Batches that outlast the interval without growing
are late by that much and no more.
"""

from __future__ import annotations

from statistics import median

from ...core.states import QueryState
from ..evidence import report
from ..finding import Finding, Severity
from ..rule_context import RuleContext

NAME = "StreamingQueryFallingBehind"
MIN_BATCHES = 5
NOTABLE_GROWTH = 1.5
GROWTH_IN_A_DAY = 3.0


def check(context: RuleContext) -> Finding | None:
    """Fire when each batch outlasted the interval for the trend window, and they grow."""
    long, day_ago = context.query.trends.long, context.query.day_ago_seconds
    if not context.is_running or long is None or context.query.loop_began is not None:
        return None
    seconds = context.watched_since(long.since)
    if long.batches < MIN_BATCHES or seconds <= context.trend_seconds:
        return None
    first, newest = median(long.first), median(long.newest)
    grew = f"{long.batches} batches in a row took longer than {long.limit:g} s"
    if newest >= NOTABLE_GROWTH * first:
        reason = f"{grew}, first {first:.0f} s, now {newest:.0f} s, in {seconds:.0f} s"
    elif day_ago is not None and newest > GROWTH_IN_A_DAY * day_ago:
        reason = f"{grew}, now {newest:.0f} s; the longest of a day ago took {day_ago:.0f} s"
    else:
        return None
    return report(context, NAME, Severity.WARNING, QueryState.SLOW, reason, does="falls behind")
