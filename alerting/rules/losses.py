"""Rules about data that does not come, or that is gone before it was read."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec
from msgspec.structs import replace

from ...core.states import QueryState
from ...core.text import duration, listed
from ...listener.source_polls import OFFSET, SourcePoll
from ...listener.state.inputs import SourceInput
from ...listener.state.positions import Cause, Gap, recent
from ...listener.state.query import (
    Outcome,
    Query,
    SkippedBatches,
    counted_until,
    has_uncounted_rows,
)
from ...listener.state.sources import Edge, EdgePoint, Exposure
from ..alert_text import NEXT_STEPS
from ..finding import DATA_LOSS_RISK, INPUT_MISSING, Finding, Severity
from .context import RuleContext
from .evidence import evidence, report

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
    ended = context.query.ended
    is_over = ended is not None and ended.outcome is not Outcome.FAILED
    if not context.query.sources or is_over or context.snapshot.context.is_on_purpose:
        return None
    risks = sorted(_risks(context), key=lambda risk: (-risk.exposure.lost, -risk.used))
    if not risks:
        return None
    worst = risks[0]
    # Two thirds of what the warning leaves are used too.
    critical = worst.used >= (2 + context.limits.data_loss_warning_ratio) / 3
    others = f"; {len(risks)} partitions in total" if len(risks) > 1 else ""
    reason = _risk_text(worst, context) + others
    does = "has lost data" if worst.exposure.lost else ""
    if worst.exposure.gone:
        does = "cannot read on"
    severity = Severity.CRITICAL if critical else Severity.WARNING
    facts = evidence(context)
    facts["retention"] = "\n".join(_risk_text(risk, context) for risk in risks[:MAX_REPORTED])
    return report(context, DATA_LOSS_RISK, severity, reason, facts, does=does)


def _risks(context: RuleContext) -> Iterator[_Risk]:
    query, allowed = context.query, context.limits.data_loss_warning_ratio
    for source in query.sources.values():
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
    committed_at = context.query.last_commit_at
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
        not context.query.alive
        or context.watched_since(context.query.last_activity_at) > context.window.seconds
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


def _risk_text(risk: _Risk, context: RuleContext) -> str:
    exposure, earliest, poll = risk.exposure, risk.edge.earliest, risk.poll
    name, committed = exposure.partition or poll.description, poll.committed[exposure.partition]
    if exposure.lost:
        return (
            f"{name}: {exposure.lost} {poll.unit}s were deleted before they were read "
            f"(committed {committed}, retained from {earliest})"
        )
    if exposure.gone:
        return f"{name}: {exposure.gone}"
    left = exposure.left_seconds(context.now)
    rest = "" if left is None else f", at least {duration(left)} left"
    written_at = exposure.written_at
    if written_at is None or exposure.used_by_time(context.now) < (exposure.used_by_offsets or 0.0):
        return (
            f"{name}: the unread backlog is {risk.used:.0%} of what the topic retains, "
            f"the retention edge is {committed - earliest} offsets behind{rest}"
        )
    unread = "record" if poll.unit == OFFSET else poll.unit
    setting = f" ({poll.retention_setting})" if poll.retention_setting else ""
    return (
        f"{name}: {risk.used:.0%} of its retention time is used up{setting}, "
        f"the oldest unread {unread} is {duration(context.now - written_at)} old{rest}"
    )


# -- skipped batches ----------------------------------------------------------------------------

NEW_OUTPUT = (
    "1. Stop the query: it commits batches whose rows it does not write.\n"
    "2. Start it with its old checkpoint; or with a new one and another output folder.\n"
    "3. Let the new checkpoint begin before the skipped rows, while the source still has them."
)
REMEMBERING = "HoodieStreamingSink"
"""Apache Hudi's sink keeps the newest batch id in its table, whatever the checkpoint."""
REMEMBERING_BY_QUERY = "DeltaSink"
"""Delta's keeps that of each query id (``txnVersion``), which only a restored checkpoint has."""


def skipped_by_sink(context: RuleContext) -> Finding | None:
    """The log of the sink is ahead of the query: Spark skips its batches, with all their rows.

    Spark counts no rows of a batch that it skips, because it does not execute it. The finding holds
    at least for a trend window, because the batches may be over in a moment.
    """
    query, skipped = context.query, context.query.skipped
    if skipped is None:
        return None
    done = query.run_commit_batch
    is_over = not query.alive or (done is not None and done >= skipped.until)
    if is_over and context.watched_since(skipped.since) > context.trend_seconds:
        return None
    sink = query.facts.sink if query.facts is not None else "its sink"
    reason = (
        f"{sink} has batches up to {skipped.until:,} of another checkpoint in its log, so Spark "
        f"skips those of this query: {_count_skipped(query, skipped)} read and not written so far; "
        f"it writes from batch {skipped.until + 1:,} on"
    )
    facts = evidence(context) | {NEXT_STEPS: NEW_OUTPUT}
    does = "does not write what it reads"
    return report(context, DATA_LOSS_RISK, Severity.CRITICAL, reason, facts, does=does)


def _count_skipped(query: Query, skipped: SkippedBatches) -> str:
    """How many batches the run has committed up to the last one that is skipped."""
    first, done = skipped.first, query.run_commit_batch
    if first is None:
        first = query.first_batch
    if first is None or done is None or done < first:
        return "no batch"
    count = min(done, skipped.until) - first + 1
    return f"{count:,} batches" if count > 1 else "1 batch"


def ids_went_back(context: RuleContext) -> Finding | None:
    """Batch ids went back, and the sink remembers them: it may skip batches until they return.

    A sink whose log can be read does so only where that shows it.
    """
    query = context.query
    if not query.went_back or not context.is_running or query.facts is None:
        return None
    sink, trouble = query.facts.sink, query.sink_log.trouble if query.sink_log is not None else ""
    same_id = query.earlier_id == query.query_id
    remembers = sink.startswith(REMEMBERING) or (same_id and sink.startswith(REMEMBERING_BY_QUERY))
    if not (remembers or trouble):
        return None
    reason = f"{sink} remembers batch ids: {query.went_back}"
    facts = evidence(context) | {NEXT_STEPS: NEW_OUTPUT}
    if trouble:
        facts["sink_log"] = trouble
    does = "may not write what it reads"
    return report(context, DATA_LOSS_RISK, Severity.WARNING, reason, facts, does=does)


# -- records passed over ------------------------------------------------------------------------


def records_passed_over(context: RuleContext) -> Finding | None:
    """The query has passed over records or versions, now or before: see ``positions.py``.

    It is an event. It ends when the records are read after all, or after ``GAP_SECONDS``.
    """
    gaps = recent(context.query.reading.gaps, context.now)
    if not gaps:
        return None
    texts = [_gap_text(gap) for gap in sorted(gaps, key=lambda gap: -gap.records)]
    others = f"; {len(gaps)} stretches in total" if len(gaps) > 1 else ""
    facts = evidence(context)
    facts["not_read"] = "\n".join(texts[:MAX_REPORTED])
    facts[NEXT_STEPS] = _steps_after(gaps)
    is_lost = any(gap.cause is Cause.DELETED for gap in gaps)
    does = "has lost data" if is_lost else "has skipped data"
    reason = texts[0] + others
    return report(
        context, DATA_LOSS_RISK, Severity.CRITICAL, reason, facts, does=does, is_past=True
    )


READ_AGAIN = """\
1. Read the records before they are deleted: with startingOffsets and a checkpoint of their own.
2. Find out why: a checkpoint that is new or was lost, or a topic that was created again.
3. If they may be left out, silence this alert; it ends a day after it was found."""
RESTORE = """\
1. The records are deleted: restore them from another system, or from the topic's producer.
2. Raise the topic's retention above the longest time that the query may be down.
3. If they may be left out, silence this alert; it ends a day after it was found."""


READ_VERSIONS = """\
1. Read the versions before their commits are deleted: with startingVersion and another checkpoint.
2. Find out why: a checkpoint that is new or was lost, with startingVersion or startingTimestamp.
3. If they may be left out, silence this alert; it ends a day after it was found."""
READ_TABLE = """\
1. Read what the table still has of them: in a batch, or with a new checkpoint and its snapshot.
2. Raise delta.logRetentionDuration above the longest time that the query may be down.
3. If they may be left out, silence this alert; it ends a day after it was found."""


def _steps_after(gaps: Collection[Gap]) -> str:
    """How to read what was passed over, for what is still retained if there is some."""
    kept = [gap for gap in gaps if not gap.is_gone]
    of_tables = all(gap.unit != OFFSET for gap in kept or gaps)
    if kept:
        return READ_VERSIONS if of_tables else READ_AGAIN
    return READ_TABLE if of_tables else RESTORE


def _gap_text(gap: Gap) -> str:
    counted, of_what = ("record", "offset ") if gap.unit == OFFSET else (gap.unit, "")
    records = f"{gap.records} {counted}{'s' if gap.records > 1 else ''}"
    span = f"{of_what}{gap.start}" + (f" to {gap.end - 1}" if gap.records > 1 else "")
    if gap.cause is Cause.DELETED:
        what = f"{records} from {span} were deleted before they were read"
        return f"{gap.partition}: {what} (retained from {gap.first})"
    if gap.cause is Cause.RECREATED:
        what = "the topic was deleted and created again"
        what += f"; of the new one, {records} from {span} are not read"
    else:
        what = f"{records} from {span} were not read: its new checkpoint begins at {gap.end}"
    if gap.is_gone:
        return f"{gap.partition}: {what}; they are deleted by now"
    if gap.first > gap.start:
        return f"{gap.partition}: {what}; those from {gap.unit} {gap.first} on are still retained"
    return f"{gap.partition}: {what}; they are still retained: start from {gap.unit} {gap.start}"


LOSSES = (skipped_by_sink, retention_used, records_passed_over, ids_went_back)
"""What ``StreamingDataLossRisk`` reports; of equally severe ones the first."""


# -- input missing ------------------------------------------------------------------------------

MANY_BATCHES = 100
FOLDER_BACK = (
    "1. Mount the folder again, or move it back: the query goes on by itself.\n"
    "2. Find out what moved or removed it, and whether its producer writes elsewhere now.\n"
    "3. If it is elsewhere for good, start the query with the new path and a new checkpoint."
)
MAX_NAMED = 3
SEVERAL = 2


def input_missing(context: RuleContext) -> Finding | None:
    """``StreamingInputMissing``: no rows for both ``expected_input_seconds`` and the window.

    An idle query is healthy unless the settings say that data must arrive, from each source.
    Without them, a source whose offsets advance in many batches in a row without a row reads around
    its data, and one whose folder is gone has none. A restarted run continues the count; the time
    in which the query was down does not count.
    """
    allowed, query = context.limits.expected_input_seconds, context.query
    if not (context.is_running or context.is_between_runs):
        return None
    gone = _folder_is_gone(context)
    reason = gone or _reads_around_its_data(context)
    if not reason and allowed is not None:
        least = max(allowed, context.window.seconds)
        reason = _without_rows(context, least) or _sources_without_rows(context, least)
        reason = reason and f"{reason} ({allowed:.0f} s allowed)"
    if not reason:
        return None
    facts = evidence(context) | ({NEXT_STEPS: FOLDER_BACK} if gone else {})
    state = None if query.activity_seen else QueryState.STARTING
    return report(context, INPUT_MISSING, Severity.WARNING, reason, facts, state=state)


def _folder_is_gone(context: RuleContext) -> str:
    """A folder that a file source has read is not there any more, at each poll for so long.

    Spark lists nothing, and the query idles. A poll without an answer proves nothing.
    """
    for source in context.query.sources.values():
        if source.gone_since is None or source.poll is None:
            continue
        seconds = context.watched_since(source.gone_since) - context.watched_since(source.poll.at)
        if seconds > context.trend_seconds:
            return (
                f"{source.poll.missing_folder} has not been there for {seconds:.0f} s: "
                f"{source.description} finds nothing to read"
            )
    return ""


def _reads_around_its_data(context: RuleContext) -> str:
    """Such as an Iceberg table after a compaction, or changes that all are skipped."""
    for trend in context.query.trends.sources:
        empty = trend.empty
        if empty is None or empty.batches < MANY_BATCHES or not context.batches_come:
            continue
        seconds = context.watched_since(empty.since)
        if seconds > context.trend_seconds:
            return (
                f"{trend.description}: {empty.batches} batches in a row read no rows in "
                f"{seconds:.0f} s, although its offsets advance"
            )
    return ""


def _without_rows(context: RuleContext, least: float) -> str:
    query = context.query
    if has_uncounted_rows(query):
        return ""
    before = query.without_input_before
    seconds, since = _seconds_without(context, query.last_input_at, before, context.now)
    return f"no rows read for {seconds:.0f} s{since}" if seconds > least else ""


def _sources_without_rows(context: RuleContext, least: float) -> str:
    """Of a query with several sources, those that have no rows while others have."""
    query, texts = context.query, []
    if len(query.inputs) < SEVERAL or (query.facts and query.facts.trigger.is_continuous):
        return ""
    until = counted_until(query, context.now)
    for source in query.inputs:
        seconds, since = _seconds_without(context, source.last_at, source.without_before, until)
        if seconds > least:
            texts.append(f"{_source_name(query, source)}: no rows read for {seconds:.0f} s{since}")
    if len(texts) in (0, len(query.inputs)):
        # The batch in flight may have rows of any of them.
        return ""
    return f"{listed(texts, MAX_NAMED)}, while other sources had some"


def _seconds_without(
    context: RuleContext, last_at: float | None, before: float, until: float
) -> tuple[float, str]:
    """Seconds without rows: since the last ones, else since the run began and ``before`` that."""
    later = context.watched_since(until)
    if last_at is not None:
        return context.watched_since(last_at) - later, ""
    seconds = context.watched_since(context.query.started_at) - later + before
    return seconds, ", over restarts" if before > 0 else ", since its run began"


def _source_name(query: Query, source: SourceInput) -> str:
    """Its description, and its place where several have the same."""
    alike = [other for other in query.inputs if other.description == source.description]
    place = f" ({source.number + 1} of {len(alike)})" if len(alike) > 1 else ""
    return f"{source.description}{place}"
