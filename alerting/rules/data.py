"""Rules about unread and late data: lag, growing batches, watermark, late rows."""

from __future__ import annotations

from math import inf
from statistics import median

from ...listener.events import Progress
from ...listener.state.trends import LagPoint, Wait, Watermark
from ..facts import (
    BatchesGrow,
    LagRises,
    OpenTransaction,
    RowsDropped,
    WaitedTooLong,
    WatermarkAhead,
    WatermarkStuck,
)
from ..finding import Finding, Severity
from ..kinds import QUERY_FALLING_BEHIND, QUERY_LAGGING, ROWS_DROPPED, WATERMARK_STUCK
from .context import RuleContext
from .evidence import report

# -- lagging ------------------------------------------------------------------------------------

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


def query_lagging(context: RuleContext) -> Finding | None:
    """``StreamingQueryLagging``: lag was above its limit for a whole window and rose.

    Lag in offsets must also rise: a steady lag may be transaction markers or a few records. Lag in
    seconds (``lag_allowed_seconds``) is the age of the first unread record, so a steady lag counts.
    A query that catches up after an outage does not lag, however far behind it is. A rise by no
    more than what arrives between two polls of the source does not count. After Burrow's rules 1
    and 5. A query that waits behind an open transaction lags, too, although Spark says that it has
    read everything. The more severe of both is reported.
    """
    waiting, unread = _behind_transactions(context), _unread(context)
    if waiting is None or unread is None:
        return waiting or unread
    return max(waiting, unread, key=lambda lag: lag.severity is Severity.CRITICAL)


def _unread(context: RuleContext) -> Finding | None:
    """The lag that was above its limit for the trend window and did not fall in it."""
    return (_waited(context) or _risen(context)) if context.commits else None


def _waited(context: RuleContext) -> Finding | None:
    """The longest wait that was too long, where waits have a limit."""
    allowed, trends = context.limits.lag_allowed_seconds, context.query.checkpoint.trends
    if allowed is None:
        return None
    waits = [_too_long(context, waits, allowed) for waits in (trends.waits, trends.reported)]
    longest = max(filter(None, waits), key=lambda wait: wait.seconds, default=None)
    if longest is None:
        return None
    is_critical = longest.seconds > CRITICAL_FACTOR * allowed
    severity = Severity.CRITICAL if is_critical else Severity.WARNING
    found = WaitedTooLong(partition=longest.partition, seconds=longest.seconds, allowed=allowed)
    return report(context, QUERY_LAGGING, severity, found)


def _risen(context: RuleContext) -> Finding | None:
    """The first lag above its limit that rises."""
    for unit, points in context.query.checkpoint.trends.rises.items():
        allowed = _allowed(unit, context)
        if rise := rising(context, points, allowed):
            found = LagRises(
                unit=unit,
                first=rise[0].lag,
                newest=rise[-1].lag,
                seconds=context.watched_since(rise[0].at),
                allowed=allowed,
            )
            return report(context, QUERY_LAGGING, Severity.WARNING, found)
    return None


def _too_long(context: RuleContext, waits: tuple[Wait, ...], allowed: float) -> Wait | None:
    """The newest wait, if all waits in the trend window were too long and did not fall."""
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
    until = context.query.run.loop_began if context.is_running else None
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
    if not context.is_running or not context.query.checkpoint.sources:
        return None
    allowed, window = context.limits.lag_allowed_seconds, context.trend_seconds
    most = inf if allowed is None else max(window, CRITICAL_FACTOR * allowed)
    held = [
        (seconds > most, transaction.records, partition, seconds)
        for source in context.query.checkpoint.sources.values()
        for partition, transaction in source.transactions.items()
        if source.poll is not None
        and (seconds := source.poll.at - transaction.since)
        > min(most, max(window, _longest_usual(transaction.took)))
    ]
    if not held:
        return None
    is_critical, records, partition, seconds = max(held)
    severity = Severity.CRITICAL if is_critical else Severity.WARNING
    found = OpenTransaction(
        partition=partition, records=records, seconds=seconds, partitions=len(held)
    )
    return report(context, QUERY_LAGGING, severity, found)


def _longest_usual(took: tuple[float, ...]) -> float:
    """How long a transaction may be open; the first one seen may have begun long before."""
    usual = MUCH_LONGER * max(took, default=0.0)
    return usual if len(took) > 1 else max(usual, LONGEST_TRANSACTION_SECONDS)


# -- falling behind -----------------------------------------------------------------------------

MIN_BATCHES_LONG = 5
NOTABLE_GROWTH = 1.5
"""Growth beyond that of the same hours a day ago, so the time of day does not explain it."""
MUCH_GROWTH = 3.0
"""Growth within a day by the time of day alone is smaller, as a rule."""


def query_falling_behind(context: RuleContext) -> Finding | None:
    """``StreamingQueryFallingBehind``: batches outlast their trigger interval, and grow.

    The window of a query follows its batches, so a slow decay never stalls it; and a query that
    reads all there is in each batch has no lag in offsets. Batches that outlast the interval
    without growing are late by that much and no more. Batches grow with the input of the hour: what
    they took a day ago counts, and without an interval lag must rise, too. Of availableNow in a
    loop, the runs count.
    """
    query, trends = context.query, context.query.checkpoint.trends
    # The trigger of a run that has just begun is not known yet.
    is_loop = (
        query.run.trigger.ends_by_itself
        if query.run.trigger is not None
        else trends.runs is not None
    )
    long = trends.runs if is_loop else trends.long
    if long is None or not (context.is_running or context.is_between_runs):
        return None
    seconds = context.watched_since(long.since)
    if long.batches < MIN_BATCHES_LONG or seconds <= context.trend_seconds:
        return None
    first, newest, day_ago = median(long.first), median(long.newest), query.history.day_ago_seconds
    much_longer = newest > MUCH_GROWTH * (day_ago or newest)
    if day_ago is None or is_loop:
        grows = newest >= max(MUCH_GROWTH * first, NOTABLE_GROWTH * (day_ago or 0.0))
    else:
        grows = much_longer or newest >= NOTABLE_GROWTH * max(first, day_ago)
    has_interval = query.run.trigger is not None and query.run.trigger.interval_seconds
    if not grows or not (is_loop or has_interval or much_longer or _lag_rises(context)):
        return None
    found = BatchesGrow(
        batches=long.batches,
        is_loop=is_loop,
        limit=long.limit,
        seconds=seconds,
        first=first,
        newest=newest,
        day_ago=day_ago,
    )
    return report(context, QUERY_FALLING_BEHIND, Severity.WARNING, found)


def _lag_rises(context: RuleContext) -> bool:
    rises = context.query.checkpoint.trends.rises.values()
    return any(rising(context, points, allowed=0.0) for points in rises)


# -- watermark stuck ----------------------------------------------------------------------------

MIN_BATCHES = 3


def watermark_stuck(context: RuleContext) -> Finding | None:
    """``StreamingWatermarkStuck``: the watermark does not advance although newer times were read.

    State then grows and results are never emitted. A watermark in the future is stuck until the
    clock reaches it, and all honest rows are late. Spark's watermark is that of the slowest source:
    a join with no rows on one side does not fire, nor one that waits for a side as it did before.
    """
    watermark, progress = context.query.checkpoint.trends.watermark, context.query.run.progress
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
    found: WatermarkStuck | WatermarkAhead = WatermarkStuck(
        seconds=seconds, batches=watermark.batches
    )
    if ahead > 0:
        found = WatermarkAhead(
            watermark=watermark.timestamp, ahead_seconds=ahead, late_rows=watermark.late_rows
        )
    return report(context, WATERMARK_STUCK, Severity.WARNING, found)


def _all_come(watermark: Watermark, progress: Progress, context: RuleContext) -> bool:
    """Whether every source had rows within the trend window."""
    return len(watermark.fed) == len(progress.sources) and all(
        context.watched_since(at) <= context.trend_seconds for at in watermark.fed.values()
    )


# -- rows dropped -------------------------------------------------------------------------------

MIN_LATE_ROWS = 10
"""Of fewer, one more or less is a tenth."""


def rows_dropped(context: RuleContext) -> Finding | None:
    """``StreamingRowsDropped``: each batch with rows drops a notable part of them as late.

    That is a tenth, all of them, or three times what was usual the day before and a hundredth. A
    few late rows are what a watermark is for, in each batch or now and then.
    """
    late, progress = context.query.checkpoint.trends.late, context.query.run.progress
    if not context.commits or late is None or progress is None:
        return None
    seconds = context.watched_since(late.since)
    if late.batches < MIN_BATCHES or seconds <= context.trend_seconds:
        return None
    watermark = progress.watermark_timestamp
    newest = progress.event_time_max
    behind = None
    if watermark is not None and newest is not None and newest < watermark:
        behind = watermark - newest
    if behind is None and late.rows < MIN_LATE_ROWS:
        return None
    share = context.query.history.late_share
    found = RowsDropped(
        batches=late.batches,
        seconds=seconds,
        rows=late.rows,
        input_rows=late.input_rows,
        usual_share=None if share is None else share.usual,
        behind_seconds=behind,
    )
    return report(context, ROWS_DROPPED, Severity.WARNING, found)
