"""The rule about state that grows and is never cleared, or fills its limit."""

from __future__ import annotations

from msgspec.structs import replace

from ...listener.events import Progress
from ...listener.foresight.state_growth import (
    DAY,
    FEW_HOURS,
    Cause,
    OperatorGrowth,
    cause_of,
    grew_for_hours,
    is_level,
    keeps_growing,
    seconds_at_this_rate,
    seconds_until,
    series_of,
    total_size,
)
from ...listener.state.trends import HOUR_SECONDS
from ..facts import StateGrowing
from ..finding import Finding, Severity
from ..kinds import STATE_GROWING
from .context import RuleContext
from .data import watermark_stuck
from .evidence import report

LEAST_ROWS = 100_000
LEAST_BYTES = 100_000_000
"""Smaller state is no danger."""
CRITICAL_SECONDS = 1800.0


def state_growing(context: RuleContext) -> Finding | None:
    """``StreamingStateGrowing``: state reaches its limit within a day, or is never cleared.

    State has the rhythm of its input, and a window keeps all until it closes. So growth counts only
    where the cause is known why nothing is removed: for three days without levelling off, or for
    hours if the watermark is stuck.
    """
    query = context.query
    progress = query.run.progress
    if progress is None or not query.checkpoint.growth:
        return None
    if not (context.is_running or context.is_between_runs):
        return None
    return _filling(context, progress) or _uncleared(context, progress)


def _filling(context: RuleContext, progress: Progress) -> Finding | None:
    """The state that reaches ``state_limit_bytes``."""
    limit = context.limits.state_limit_bytes
    growths = context.query.checkpoint.growth
    series = total_size(growths, context.now) if limit is not None else ()
    if limit is None or not series:
        return None
    soon = seconds_at_this_rate(growths, series, limit)
    is_critical = series[-1] >= limit or (soon is not None and soon <= CRITICAL_SECONDS)
    seconds = soon if is_critical else seconds_until(series, limit)
    if seconds is None and not is_critical:
        return None
    label, growth = max(growths.items(), key=lambda entry: _size(entry[1]))
    found = _facts(context, label, growth, _cause(context, growth, progress))
    is_reached = series[-1] >= limit
    found = replace(
        found,
        size_bytes=series[-1],
        limit_bytes=limit,
        limit_seconds=0.0 if is_reached else seconds,
    )
    severity = Severity.CRITICAL if is_critical else Severity.WARNING
    return report(context, STATE_GROWING, severity, found)


def _size(growth: OperatorGrowth) -> float:
    return 0.0 if growth.size is None else growth.size.now


def _uncleared(context: RuleContext, progress: Progress) -> Finding | None:
    """The first operator that grows, and from which nothing is removed for a known cause."""
    for label, growth in context.query.checkpoint.growth.items():
        cause = _cause(context, growth, progress)
        if cause is None or not _grows(context, growth, cause):
            continue
        return report(
            context, STATE_GROWING, Severity.WARNING, _facts(context, label, growth, cause)
        )
    return None


def _cause(context: RuleContext, growth: OperatorGrowth, progress: Progress) -> Cause | None:
    watermark = context.query.checkpoint.trends.watermark
    stuck_since = None if watermark is None else watermark.since
    is_stuck = stuck_since is not None and (
        context.watched_since(stuck_since) >= FEW_HOURS * HOUR_SECONDS
    )
    if is_stuck:
        return Cause.WATERMARK_STUCK
    return cause_of(growth, progress, context.now)


def _grows(context: RuleContext, growth: OperatorGrowth, cause: Cause) -> bool:
    rows = series_of(growth.rows, growth, context.now)
    sizes = series_of(growth.size, growth, context.now)
    has_many_rows = bool(rows) and rows[-1] >= LEAST_ROWS
    is_large = has_many_rows or (bool(sizes) and sizes[-1] >= LEAST_BYTES)
    if not is_large:
        return False
    # Files saw by compaction: they show growth only where the values grow, not the rows.
    grown = sizes if not rows or is_level(rows) else rows
    if cause is Cause.WATERMARK_STUCK:
        # The alert of the watermark says the same, and why.
        return grew_for_hours(grown) and watermark_stuck(context) is None
    return keeps_growing(grown, series_of(growth.read, growth, context.now))


def _facts(
    context: RuleContext, label: str, growth: OperatorGrowth, cause: Cause | None
) -> StateGrowing:
    rows = series_of(growth.rows, growth, context.now)
    sizes = series_of(growth.size, growth, context.now)
    hours = min(DAY, max(len(rows), len(sizes), 1) - 1)
    return StateGrowing(
        operator=label,
        rows=rows[-1] if rows else None,
        size_bytes=sizes[-1] if sizes else None,
        seconds=hours * HOUR_SECONDS,
        grown_rows=rows[-1] - rows[-1 - hours] if len(rows) > hours else None,
        grown_bytes=sizes[-1] - sizes[-1 - hours] if len(sizes) > hours else None,
        cause=cause,
        has_removed=growth.removed_at is not None,
    )
