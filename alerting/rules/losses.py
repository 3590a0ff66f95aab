"""Rules about data that does not come, or that is gone before it was read."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from ...core.states import QueryState
from ...listener.source_polls import OFFSET, SourcePoll
from ...listener.state.inputs import SourceInput
from ...listener.state.positions import Cause, recent
from ...listener.state.query import Query, counted_until, has_uncounted_rows
from ...listener.state.run import Outcome, SkippedBatches
from ...listener.state.sources import Edge, EdgePoint, Exposure
from ..facts import (
    DrySource,
    Facts,
    FolderGone,
    NoRows,
    PassedOver,
    ReadsNothing,
    RetentionRisk,
    RetentionUsed,
    Since,
    SinkRemembers,
    SkippedBySink,
)
from ..finding import Finding, Severity
from ..kinds import DATA_LOSS_RISK, INPUT_MISSING
from .context import RuleContext
from .evidence import ids_went_back as batch_ids_went_back
from .evidence import report

# -- data loss risk -----------------------------------------------------------------------------

MIN_POLLS = 2
MAX_REPORTED = 10


class _Risk(msgspec.Struct, frozen=True):
    """A partition that the retention edge catches up with, and the used share of its retention."""

    exposure: Exposure
    used: float
    poll: SourcePoll
    edge: Edge


def data_loss_risk(context: RuleContext) -> Finding | None:
    """``StreamingDataLossRisk``: data was lost or skipped, or is about to be.

    Each part finds one kind of loss; the most severe is reported.
    """
    losses = [loss for part in LOSSES if (loss := part(context)) is not None]
    return max(losses, key=lambda loss: loss.severity is Severity.CRITICAL, default=None)


def retention_used(context: RuleContext) -> Finding | None:
    """Unread data is near the retention edge, or beyond it.

    It fires when the edge catches up with the query and the allowed share of retention is used.
    When ``failOnDataLoss`` fails the query, the data is already lost. A query that starts at the
    oldest retained record and moves faster than the edge is not at risk. The ratio follows
    klag-exporter's lag-to-retention ratio, without its false alarms on idle topics.
    """
    ended = context.query.run.ended
    is_over = ended is not None and ended.outcome is not Outcome.FAILED
    if not context.query.checkpoint.sources or is_over or context.snapshot.context.is_on_purpose:
        return None
    risks = sorted(_risks(context), key=lambda risk: (-risk.exposure.lost, -risk.used))
    if not risks:
        return None
    worst = risks[0]
    # Two thirds of what the warning leaves are used too.
    critical = worst.used >= (2 + context.limits.data_loss_warning_ratio) / 3
    severity = Severity.CRITICAL if critical else Severity.WARNING
    reported = tuple(_retention_risk(risk, context) for risk in risks[:MAX_REPORTED])
    found = RetentionUsed(risks=reported, count=len(risks))
    return report(context, DATA_LOSS_RISK, severity, found)


def _risks(context: RuleContext) -> Iterator[_Risk]:
    query, allowed = context.query, context.limits.data_loss_warning_ratio
    for source in query.checkpoint.sources.values():
        poll = source.poll
        if poll is None or _committed_since(context, poll):
            continue
        for exposure in source.exposures.values():
            if exposure.used(context.now) < allowed:
                continue
            edge = source.edges[exposure.partition]
            danger = _danger(context, exposure, edge, poll)
            used = danger.used(context.now) if danger is not None else 0.0
            if danger is not None and used >= allowed:
                yield _Risk(danger, used, poll, edge)


def _committed_since(context: RuleContext, poll: SourcePoll) -> bool:
    """Whether the poll is old and the query has committed since: its position is unknown."""
    committed_at = context.query.run.last_commit_at
    if committed_at is None or committed_at <= poll.at:
        return False
    return context.watched_since(poll.at) > context.trend_seconds


def _danger(
    context: RuleContext, exposure: Exposure, edge: Edge, poll: SourcePoll
) -> Exposure | None:
    """The part of the exposure by which the edge catches up with the query; None if none does."""
    if exposure.lost:
        return exposure
    if len(edge.points) < MIN_POLLS:
        return None
    if _reads_nothing(context):
        return exposure
    if exposure.gone:
        # The batch in flight may have planned beyond it.
        return None
    then, now = _window_ago(context, edge), edge.points[-1]
    if then is None:
        return None
    if not _grows_old(then, now):
        exposure = replace(exposure, keeps_seconds=None)
    if not _is_overtaken(then, now, edge.speed(poll.at)):
        exposure = replace(exposure, used_by_offsets=None, passed_at=None)
    return exposure


def _reads_nothing(context: RuleContext) -> bool:
    """Whether the query reads nothing: it has ended, or had no activity for its window."""
    return (
        not context.query.run.alive
        or context.watched_since(context.query.run.last_activity_at) > context.window.seconds
    )


def _window_ago(context: RuleContext, edge: Edge) -> EdgePoint | None:
    """The newest poll before the window began; there has been unread data since then."""
    begin = context.now - context.window.seconds
    point = next((point for point in reversed(edge.points) if point.at <= begin), None)
    watched = point is not None and context.watched_since(point.at) >= context.window.seconds
    return point if watched else None


def _grows_old(then: EdgePoint, now: EdgePoint) -> bool:
    """Whether the oldest unread record is older than it was then.

    If the query advances but the timestamps of the records do not, they prove nothing.
    """
    if then.waiting_since is None or now.waiting_since is None:
        return False
    advanced = now.waiting_since - then.waiting_since
    is_there = (now.committed, now.within) == (then.committed, then.within)
    return advanced < now.at - then.at and (advanced > 0 or is_there)


def _is_overtaken(then: EdgePoint, now: EdgePoint, edge_speed: float | None) -> bool:
    """Whether the edge moves faster than the query."""
    if edge_speed is None or now.at <= then.at:
        return False
    return (now.committed - then.committed) / (now.at - then.at) < edge_speed


def _retention_risk(risk: _Risk, context: RuleContext) -> RetentionRisk:
    exposure = risk.exposure
    poll = risk.poll
    written_at = exposure.written_at
    by_time = exposure.used_by_time(context.now)
    is_by_time = written_at is not None and by_time >= (exposure.used_by_offsets or 0.0)
    return RetentionRisk(
        name=exposure.partition or poll.description,
        unit=poll.unit,
        committed=poll.committed[exposure.partition],
        earliest=risk.edge.earliest,
        used=risk.used,
        lost=exposure.lost,
        gone=exposure.gone,
        left_seconds=exposure.left_seconds(context.now),
        oldest_seconds=context.now - written_at if written_at is not None and is_by_time else None,
        setting=poll.retention_setting,
    )


# -- skipped batches ----------------------------------------------------------------------------

REMEMBERING = "HoodieStreamingSink"
"""Apache Hudi's sink keeps the newest batch id in its table, whatever the checkpoint."""
REMEMBERING_BY_QUERY = "DeltaSink"
"""Delta's keeps that of each query id (``txnVersion``), which only a restored checkpoint has."""


def skipped_by_sink(context: RuleContext) -> Finding | None:
    """The log of the sink is ahead of the query: Spark skips its batches, with all their rows.

    Spark counts no rows of a batch that it skips, because it does not execute it. The finding holds
    at least for a trend window, because the batches may be over in a moment.
    """
    query, skipped = context.query, context.query.run.skipped
    if skipped is None:
        return None
    done = query.run.last_commit_batch
    is_over = not query.run.alive or (done is not None and done >= skipped.until)
    if is_over and context.watched_since(skipped.since) > context.trend_seconds:
        return None
    found = SkippedBySink(
        sink=query.run.facts.sink if query.run.facts is not None else "its sink",
        until=skipped.until,
        batches=_count_skipped(query, skipped),
    )
    return report(context, DATA_LOSS_RISK, Severity.CRITICAL, found)


def _count_skipped(query: Query, skipped: SkippedBatches) -> int:
    """How many batches the run has committed up to the last one that is skipped."""
    first = query.run.first_batch if skipped.first is None else skipped.first
    done = query.run.last_commit_batch
    if first is None or done is None or done < first:
        return 0
    return min(done, skipped.until) - first + 1


def ids_went_back(context: RuleContext) -> Finding | None:
    """Batch ids went back, and the sink remembers them: it may skip batches until they return.

    A sink whose log can be read does so only where that shows it.
    """
    query = context.query
    ids = batch_ids_went_back(query)
    if ids is None or not context.is_running or query.run.facts is None:
        return None
    sink = query.run.facts.sink
    trouble = query.run.sink_log.trouble if query.run.sink_log is not None else ""
    same_id = query.history.earlier_id == query.query_id
    remembers = sink.startswith(REMEMBERING) or (same_id and sink.startswith(REMEMBERING_BY_QUERY))
    if not (remembers or trouble):
        return None
    found = SinkRemembers(sink=sink, ids=ids, trouble=trouble)
    return report(context, DATA_LOSS_RISK, Severity.WARNING, found)


# -- records passed over ------------------------------------------------------------------------


def records_passed_over(context: RuleContext) -> Finding | None:
    """The query has passed over records or versions, now or before: see ``positions.py``.

    It is an event. It ends when the records are read after all, or after ``GAP_SECONDS``.
    """
    gaps = recent(context.query.history.reading.gaps, context.now)
    if not gaps:
        return None
    kept = [gap for gap in gaps if not gap.is_gone]
    found = PassedOver(
        gaps=tuple(sorted(gaps, key=lambda gap: -gap.records)[:MAX_REPORTED]),
        count=len(gaps),
        is_lost=any(gap.cause is Cause.DELETED for gap in gaps),
        is_readable=bool(kept),
        are_tables=all(gap.unit != OFFSET for gap in kept or gaps),
    )
    return report(context, DATA_LOSS_RISK, Severity.CRITICAL, found, is_past=True)


LOSSES = (skipped_by_sink, retention_used, records_passed_over, ids_went_back)
"""What ``StreamingDataLossRisk`` reports; of equally severe ones the first."""


# -- input missing ------------------------------------------------------------------------------

MANY_BATCHES = 100
SEVERAL = 2


def input_missing(context: RuleContext) -> Finding | None:
    """``StreamingInputMissing``: no rows for both ``expected_input_seconds`` and the window.

    An idle query is healthy unless the settings say that data must arrive, from each source.
    Without them, a source whose offsets advance in many batches in a row without a row reads around
    its data, and one whose folder is gone has none. A restarted run continues the count; the time
    in which the query was down does not count.
    """
    query = context.query
    if not (context.is_running or context.is_between_runs):
        return None
    found: Facts | None = _folder_gone(context) or _reads_around_its_data(context)
    allowed = context.limits.expected_input_seconds
    if found is None and allowed is not None:
        least = max(allowed, context.window.seconds)
        found = _without_rows(context, allowed, least)
        found = found or _sources_without_rows(context, allowed, least)
    if found is None:
        return None
    state = None if query.run.activity_seen else QueryState.STARTING
    return report(context, INPUT_MISSING, Severity.WARNING, found, state=state)


def _folder_gone(context: RuleContext) -> FolderGone | None:
    """A folder that a file source has read is not there any more, at each poll for so long.

    Spark lists nothing, and the query idles. A poll without an answer proves nothing.
    """
    for source in context.query.checkpoint.sources.values():
        if source.gone_since is None or source.poll is None:
            continue
        seconds = context.watched_since(source.gone_since) - context.watched_since(source.poll.at)
        if seconds > context.trend_seconds:
            return FolderGone(
                folder=source.poll.missing_folder, source=source.description, seconds=seconds
            )
    return None


def _reads_around_its_data(context: RuleContext) -> ReadsNothing | None:
    """Such as an Iceberg table after a compaction, or changes that all are skipped."""
    for trend in context.query.checkpoint.trends.sources:
        empty = trend.empty
        if empty is None or empty.batches < MANY_BATCHES or not context.batches_come:
            continue
        seconds = context.watched_since(empty.since)
        if seconds > context.trend_seconds:
            return ReadsNothing(source=trend.description, batches=empty.batches, seconds=seconds)
    return None


def _without_rows(context: RuleContext, allowed: float, least: float) -> NoRows | None:
    query = context.query
    if has_uncounted_rows(query):
        return None
    before = query.checkpoint.without_input_before
    seconds, since = _seconds_without(context, query.run.last_input_at, before, context.now)
    return NoRows(allowed=allowed, seconds=seconds, since=since) if seconds > least else None


def _sources_without_rows(context: RuleContext, allowed: float, least: float) -> NoRows | None:
    """Of a query with several sources, those that have no rows while others have."""
    query = context.query
    if len(query.checkpoint.inputs) < SEVERAL or (
        query.run.facts and query.run.facts.trigger.is_continuous
    ):
        return None
    until = counted_until(query, context.now)
    dry = []
    for source in query.checkpoint.inputs:
        seconds, since = _seconds_without(context, source.last_at, source.without_before, until)
        if seconds > least:
            dry.append(_dry_source(query, source, seconds, since))
    if len(dry) in (0, len(query.checkpoint.inputs)):
        # The batch in flight may have rows of any of them.
        return None
    return NoRows(allowed=allowed, sources=tuple(dry))


def _seconds_without(
    context: RuleContext, last_at: float | None, before: float, until: float
) -> tuple[float, Since]:
    """Seconds without rows: since the last ones, else since the run began and ``before`` that."""
    later = context.watched_since(until)
    if last_at is not None:
        return context.watched_since(last_at) - later, Since.LAST_ROWS
    seconds = context.watched_since(context.query.run.started_at) - later + before
    return seconds, Since.EARLIER_RUNS if before > 0 else Since.RUN_BEGAN


def _dry_source(query: Query, source: SourceInput, seconds: float, since: Since) -> DrySource:
    alike = sum(other.description == source.description for other in query.checkpoint.inputs)
    return DrySource(source.description, source.number + 1, alike, seconds, since)
