"""StreamingQueryLagging: lag was above its limit for a whole window and rose.

Lag in offsets must also rise: a steady lag may be transaction markers or a few records. Lag in
seconds (``lag_allowed_seconds``) is the age of the first unread record, so a steady lag counts.
A query that catches up after an outage does not lag, however far behind it is. A rise by no more
than what arrives between two polls of the source does not count. After Burrow's rules 1 and 5.
A backlog in files counts ten offsets a file. A query that waits behind an open transaction lags,
too, although Spark says that it has read everything.
"""

from __future__ import annotations

from math import inf

from ...core.states import QueryState
from ...listener.source_polls import Wait
from ...listener.state.trends import LagPoint
from ..evidence import report
from ..finding import Finding, Severity
from ..rule_context import RuleContext

NAME = "StreamingQueryLagging"
MIN_POINTS = 3
NOTABLE_RISE = 1.05
"""A rise of less than 5% is not a trend yet; a slow rise reaches it later."""
NOTABLE_FALL = 0.05
"""A query catches up if its wait falls by at least 5%, and by more than the error of two polls."""
OFFSETS_PER_FILE = 10.0
BURST_SECONDS = 3600.0
MUCH_LONGER = 3.0
"""Transactions are often open for minutes (Flink); a longer one than this times the last hangs."""
LONGEST_TRANSACTION_SECONDS = 900.0
"""Kafka's default of ``transaction.max.timeout.ms``: brokers allow no producer a longer one."""
CRITICAL_FACTOR = 3.0
"""Lag is critical above this multiple of ``lag_allowed_seconds``."""


def check(context: RuleContext) -> Finding | None:
    """Fire for the more severe of what waits behind a transaction, and what is just not read."""
    lags = [lag for lag in (_behind_transactions(context), _unread(context)) if lag is not None]
    return max(lags, key=lambda lag: lag.severity is Severity.CRITICAL, default=None)


def _unread(context: RuleContext) -> Finding | None:
    """The lag that was above its limit for the trend window and did not fall in it."""
    if not context.commits:
        return None
    unread, allowed = context.query.unread, context.limits.lag_allowed_seconds or 0.0
    waits = [_too_long(context, unread.waits), _too_long(context, unread.reported)]
    longest = max(filter(None, waits), key=lambda wait: wait.seconds, default=None)
    severity = Severity.WARNING
    if longest is not None:
        where = f" of {longest.partition}" if longest.partition else ""
        waited = f"the first unread record{where} has waited for {longest.seconds:.0f} s"
        reason = f"{waited} ({allowed:.0f} s allowed)"
        if longest.seconds > CRITICAL_FACTOR * allowed:
            severity = Severity.CRITICAL
    else:
        reason = _risen(context)
    if not reason:
        return None
    return report(context, NAME, severity, QueryState.LAGGING, reason, does="falls behind")


def _risen(context: RuleContext) -> str:
    """The first lag above its limit that rises."""
    for unit, points in context.query.trends.rises.items():
        allowed = _allowed(unit, context)
        if rise := rising(context, points, allowed):
            lags = f"lag rose from {rise[0].lag:.0f} to {rise[-1].lag:.0f} {unit}"
            seconds = context.watched_since(rise[0].at)
            return f"{lags} in {seconds:.0f} s ({allowed:.0f} allowed)"
    return ""


def _too_long(context: RuleContext, waits: tuple[Wait, ...]) -> Wait | None:
    """The newest wait, if all waits in the trend window were too long and did not fall."""
    allowed = context.limits.lag_allowed_seconds
    if allowed is None:
        return None
    before = [wait for wait in waits if context.watched_since(wait.at) >= context.trend_seconds]
    within = waits[max(0, len(before) - 1) :]
    if not before or len(within) < MIN_POINTS:
        return None
    if any(wait.seconds <= allowed for wait in within) or _catches_up(within):
        return None
    is_old = context.watched_since(within[-1].at) > context.trend_seconds / 2
    return None if is_old else within[-1]


def _catches_up(waits: tuple[Wait, ...]) -> bool:
    """Whether the wait falls; offsets count too where the wait is only known to be a minimum."""
    first, newest = waits[0], waits[-1]
    if first.seconds - newest.seconds > max(first.seconds * NOTABLE_FALL, newest.noise):
        return True
    return any(wait.is_least for wait in waits) and newest.lag < first.lag * (1 - NOTABLE_FALL)


def rising(
    context: RuleContext, points: tuple[LagPoint, ...], allowed: float
) -> tuple[LagPoint, ...]:
    """The lag above the limit, if it rises: without a fall for the trend window, or for an hour.

    Data that comes in bursts lets the lag fall between them, however far behind a query is.
    """
    # No earlier point is higher than the last one. Most lags end here, at each evaluation.
    if points[-1].lag <= allowed:
        return ()
    # Only the end of a run of a loop shows what it leaves unread.
    until = context.query.loop_began if context.is_running else None
    points = tuple(point for point in points if until is None or point.at < until)
    steady = tuple(point for point in points if point.at >= points[-1].fell_at)
    return _rises(context, steady, allowed, context.trend_seconds) or _rises(
        context, points, allowed, max(context.trend_seconds, BURST_SECONDS)
    )


def _rises(
    context: RuleContext, points: tuple[LagPoint, ...], allowed: float, lasting: float
) -> tuple[LagPoint, ...]:
    rise = tuple(point for point in points if point.lag > allowed)
    if len(points) < MIN_POINTS or not rise:
        return ()
    first, newest = rise[0], rise[-1]
    middle = [point for point in rise if point.at <= (first.at + newest.at) / 2][-1]
    lasts = context.watched_since(first.at) >= lasting
    is_recent = context.watched_since(newest.at) <= context.trend_seconds / 2
    continues = newest.lag - middle.lag > max(middle.noise, newest.noise)
    notable = newest.lag >= first.lag * NOTABLE_RISE
    return rise if lasts and is_recent and continues and notable else ()


def _allowed(unit: str, context: RuleContext) -> float:
    """The limit of a lag in this unit; a lag in seconds has its own rule where one is set."""
    if unit == "s":
        return context.limits.lag_allowed_seconds or context.trend_seconds
    allowed = context.limits.lag_allowed_offsets
    return allowed / OFFSETS_PER_FILE if unit == "files" else allowed


def _behind_transactions(context: RuleContext) -> Finding | None:
    """What waits behind transactions that are open for far longer than usual, or than allowed."""
    if not context.is_running:
        return None
    allowed, window = context.limits.lag_allowed_seconds, context.trend_seconds
    most = inf if allowed is None else max(window, CRITICAL_FACTOR * allowed)
    held = [
        (seconds > most, transaction.records, partition, seconds)
        for partitions in context.query.transactions.values()
        for partition, transaction in partitions.items()
        if (seconds := transaction.polled_at - transaction.since)
        > min(most, max(window, _longest_usual(transaction.took)))
    ]
    if not held:
        return None
    is_critical, records, partition, seconds = max(held)
    others = f"; {len(held)} partitions in total" if len(held) > 1 else ""
    reason = f"{partition}: {records} records wait behind an open transaction, for {seconds:.0f} s"
    severity = Severity.CRITICAL if is_critical else Severity.WARNING
    does = "waits for a commit"
    return report(context, NAME, severity, QueryState.LAGGING, reason + others, does=does)


def _longest_usual(took: tuple[float, ...]) -> float:
    """How long a transaction may be open; the first one seen may have begun long before."""
    usual = MUCH_LONGER * max(took, default=0.0)
    return usual if len(took) > 1 else max(usual, LONGEST_TRANSACTION_SECONDS)
