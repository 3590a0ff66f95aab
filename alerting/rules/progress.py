"""Rules about batches and offsets that do not advance, or advance slowly or backwards."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from ...core.states import QueryState
from ...listener.offsets import WHOLE
from ...listener.probe_report import Moves
from ...listener.state.run import InFlight
from ...listener.state.trends import Rewind, SourceTrend
from ..evidence import Evidence
from ..facts import (
    EndsBefore,
    Facts,
    LogBehind,
    NoEpoch,
    NoTrigger,
    OffsetsStuck,
    OffsetsWentBack,
    Silent,
    SlotsHeld,
    StuckSource,
    WaitingForSlots,
    WaitsForLog,
    WentBack,
)
from ..finding import Finding, Severity, finding_about
from ..kinds import BATCH_SLOW, OFFSETS_REWOUND, OFFSETS_STALLED, QUERY_STALLED, SharedCause
from ..policy import WINDOW_FACTOR
from . import stuck_batch
from .context import RuleContext
from .evidence import collect, report, unfinished

# -- stalled ------------------------------------------------------------------------------------

MIN_POLLS = 2
NEW_BATCHES = 10
"""So many batches may commit within a moment."""


def query_stalled(context: RuleContext) -> Finding | None:
    """``StreamingQueryStalled``: no commit for the window W, and the query is not proven idle.

    The reason begins with a code:

    * ``scheduler_stopped``: the event loop of Spark's scheduler has ended, or is blocked, which
      holds the batches of all queries;
    * ``batch_hung``: a batch is in flight, none of its tasks has finished and its thread has not
      worked for W; a warning at first if the job's own Python is blocked, or Spark's thread tries
      again;
    * ``task_running``, ``no_executors``, ``executors_lost``, ``waiting_for_slots``: the same, but a
      task of the batch runs, Spark has no executor, it loses them again and again, or other jobs
      hold all slots; these are warnings at first;
    * ``source_hung``: the query has been waiting for the offsets of a source for W;
    * ``no_trigger``: no batch is in flight and no trigger has started one;
    * ``commit_log_behind``: the commit log of the checkpoint does not advance, although batches run
      (async progress tracking) or epochs should (Continuous);
    * ``silent``: events, probe and commit log all show no activity.
    """
    if not context.is_running:
        return None
    is_continuous = _is_continuous(context)
    stopped = _log_behind(context) or (_no_epoch(context) if is_continuous else None)
    if stopped is not None:
        return _stalled(context, stopped)
    why = None if is_continuous else _what_stalls(context)
    if why is None:
        return None
    flight = context.query.run.in_flight
    why = replace(
        why,
        unfinished=unfinished(context),
        stopping_seconds=stuck_batch.stopping_seconds(context),
        lost=None if flight is None else stuck_batch.lost_since(context, flight.since),
    )
    if flight is None or _is_blind(context, flight) or _waits_for_log(context):
        return _stalled(context, why)
    holds_all = stuck_batch.scheduler_stopped(context, stuck_batch.in_flight(context, flight))
    severity = Severity.CRITICAL if holds_all else stuck_batch.stall_severity(context, flight)
    evidence = stuck_batch.batch_evidence(context, flight, severity, with_restart=True)
    if holds_all:
        shared = SharedCause.SCHEDULER_STOPPED
        return _stalled(context, why, severity, evidence, shared=shared)
    return _with_holder(context, flight, _stalled(context, why, severity, evidence))


def _with_holder(context: RuleContext, flight: InFlight, finding: Finding) -> Finding:
    is_waiting = isinstance(finding.facts, WaitingForSlots)
    holder = stuck_batch.holder_of(context) if is_waiting else None
    if holder is None or context.watched_since(flight.held_since) < stuck_batch.SAMPLE_SECONDS:
        return finding
    pages_holder = stuck_batch.pages_holder(context, flight)
    return replace(finding, holder=holder.label, pages_holder=pages_holder)


def _is_blind(context: RuleContext, flight: InFlight) -> bool:
    """Whether nothing shows what the batch in flight waits for.

    A late poll does not change that the last one showed a delay, or what may wait outside: a pause
    of the JVM alone makes no such batch critical.
    """
    if not context.probe_is_stale:
        return False
    is_shown = stuck_batch.is_delayed(context) or stuck_batch.may_wait_outside(context, flight)
    return context.driver_is_silent or not is_shown


def _stalled(
    context: RuleContext,
    why: Facts,
    severity: Severity = Severity.CRITICAL,
    evidence: Evidence | None = None,
    *,
    shared: SharedCause | None = None,
) -> Finding:
    if evidence is None:
        evidence = collect(context, with_restart=True)
    if context.driver_is_silent:
        shared = SharedCause.JVM_SILENT
    return report(context, QUERY_STALLED, severity, why, evidence, shared=shared)


def _is_continuous(context: RuleContext) -> bool:
    return context.query.run.facts is not None and context.query.run.facts.trigger.is_continuous


def _no_epoch(context: RuleContext) -> NoEpoch | None:
    """Only the commit log shows the progress of a Continuous query: None until it has been read."""
    query = context.query
    if query.run.logged_at is None or context.probe_is_stale:
        return None
    unseen = context.watched_since(query.run.logged_at)
    silence = context.watched_since(query.run.last_activity_at) - unseen
    if silence <= context.window.seconds:
        return None
    return NoEpoch(seconds=silence)


def _log_behind(context: RuleContext) -> LogBehind | None:
    """Async progress tracking: poll after poll batches advanced, but the commit log did not.

    Spark may write the log rarely, so it may lag by its interval while batches run. Spark blocks
    the query when too many entries wait to be written; then only idleness excuses the log.
    """
    lag, facts = context.query.run.log_behind, context.query.run.facts
    if lag is None or lag.polls < MIN_POLLS or facts is None or _idle_since_commit(context):
        return None
    seconds = context.watched_since(lag.since) - _log_unread(context) - _in_flight(context)
    allowed = context.window.seconds
    if context.batches_come:
        allowed = max(allowed, facts.log_interval_seconds * WINDOW_FACTOR)
    if seconds - _just_committed(context) <= allowed:
        return None
    log = context.query.run.logged
    logged = None if log is None else log.committed
    return LogBehind(
        seconds=seconds, logged=logged, reached=context.query.checkpoint.last_commit_batch
    )


def _log_unread(context: RuleContext) -> float:
    """Seconds since the log was last read: it may have advanced meanwhile."""
    logged_at = context.query.run.logged_at
    return 0.0 if logged_at is None else context.watched_since(logged_at)


def _in_flight(context: RuleContext) -> float:
    """Seconds of the batch in flight, unless it is critical: the log waits for it to finish."""
    flight = context.query.run.in_flight
    if flight is None or context.probe_is_stale or _waits_for_log(context):
        return 0.0
    delayed = stuck_batch.stall_severity(context, flight) is Severity.WARNING
    excused = delayed or stuck_batch.moved_lately(context, flight)
    return stuck_batch.lasted(context, flight) if excused else 0.0


def _just_committed(context: RuleContext) -> float:
    """Seconds of the longest batch that may have just committed: the log is about to show it."""
    query = context.query
    committed_at, batches = query.run.last_commit_at, query.history.recent_batches
    if committed_at is None or not batches:
        return 0.0
    is_new = context.watched_since(committed_at) < stuck_batch.SAMPLE_SECONDS
    return max(batches[-NEW_BATCHES:]) if is_new else 0.0


def _idle_since_commit(context: RuleContext) -> bool:
    idle_at, commit_at = context.query.run.last_idle_at, context.query.run.last_commit_at
    return idle_at is not None and (commit_at is None or idle_at > commit_at)


def _silence(context: RuleContext) -> float:
    """Seconds since the last activity; a JVM that does not answer counts only after a window."""
    silence = context.watched_since(context.query.run.last_activity_at)
    if not context.probe_is_stale or context.received_at is None or context.driver_is_silent:
        return silence
    return silence - context.watched_since(context.received_at)


def _what_stalls(context: RuleContext) -> Facts | None:
    """What stalls the query, or None while it may still make progress."""
    flight = context.query.run.in_flight
    silence = _silence(context)
    window = context.window.seconds
    if context.query.run.probed is None or context.probe_is_stale:
        moved = flight is not None and context.watched_since(flight.moved_at) <= window
        is_at_work = moved and not _waits_for_log(context)
        return None if silence <= window or is_at_work else Silent(seconds=silence)
    if flight is None:
        return None if silence <= window else NoTrigger(seconds=silence)
    return _what_holds(context, flight) if silence > context.batch_window.seconds else None


def _what_holds(context: RuleContext, flight: InFlight) -> Facts | None:
    """What holds the batch in flight, or None while it may still make progress."""
    if _waits_for_log(context):
        return WaitsForLog(seconds=stuck_batch.lasted(context, flight))
    if stuck_batch.moved_lately(context, flight):
        return None
    batch = stuck_batch.in_flight(context, flight)
    scheduler = stuck_batch.scheduler_stopped(context, batch)
    if scheduler is not None:
        return scheduler
    if stuck_batch.may_get_executors(context, flight) or stuck_batch.may_get_slots(context):
        return None
    return stuck_batch.delayed(context, flight) or stuck_batch.hung(context, flight)


def _waits_for_log(context: RuleContext) -> bool:
    """Whether Spark reports that the query only waits for its commit log."""
    return context.work is not None and context.work.waits_for_log


# -- offsets stalled ----------------------------------------------------------------------------

MAX_NAMED = 3
MIN_BATCHES_STUCK = 3


def offsets_stalled(context: RuleContext) -> Finding | None:
    """``StreamingOffsetsStalled``: batches run, but offsets do not advance although data is unread.

    This is Burrow's rule for a stalled partition: every batch in the window has the same end
    offset, and it is always behind the latest offset of the source.
    """
    if not context.is_running or not context.batches_come:
        return None
    stalled = [
        (trend, partitions)
        for trend in context.query.checkpoint.trends.sources
        if trend.stuck and (partitions := _stuck(trend, context))
    ]
    if not stalled:
        return None
    sources = tuple(_stuck_source(trend, partitions) for trend, partitions in stalled)
    return report(context, OFFSETS_STALLED, Severity.CRITICAL, OffsetsStuck(sources=sources))


def _stuck(trend: SourceTrend, context: RuleContext) -> dict[str, float]:
    """Seconds for which each stalled partition has not advanced."""
    return {
        partition: seconds
        for partition, stuck in trend.stuck.items()
        if stuck.batches >= MIN_BATCHES_STUCK
        and (seconds := context.watched_since(stuck.since)) > context.window.seconds
    }


def _stuck_source(trend: SourceTrend, partitions: dict[str, float]) -> StuckSource:
    names = tuple(sorted(partitions)[:MAX_NAMED])
    return StuckSource(trend.description, names, len(partitions), max(partitions.values()))


# -- offsets rewound ----------------------------------------------------------------------------

MIN_BATCHES_REWOUND = 2


LOST_IDENTITY_SECONDS = 3600.0
"""How long it is reported: the risk is past with the first batch of the run."""


def offsets_rewound(context: RuleContext) -> Finding | None:
    """``StreamingOffsetsRewound``: an end offset went back and stays, or the source ends before it.

    If a topic was deleted and created again, a checkpoint was restored, or a source has lost its
    position, rows are read twice. If a table was replaced by a shorter one, new rows are never
    read. This is Burrow's rule 2 with a delay of the window: after a restart Spark may repeat its
    last batches. For an hour it also reports a checkpoint that lost its query id: sinks that
    remember batches by that id may write one twice.
    """
    if not context.is_running:
        return None
    went_back = tuple(_went_back(context))
    ends_before = tuple(_ends_before(context))
    has_lost_id = _has_lost_identity(context)
    if not (went_back or ends_before or has_lost_id):
        return None
    is_only_id = not (went_back or ends_before)
    found = OffsetsWentBack(
        went_back=went_back,
        ends_before=ends_before,
        new_id_of=context.query.run.checkpoint_folder if has_lost_id else None,
        id_before=context.query.checkpoint.id_before if is_only_id else "",
    )
    state = QueryState.RUNNING if is_only_id else None
    return report(context, OFFSETS_REWOUND, Severity.WARNING, found, state=state)


def _has_lost_identity(context: RuleContext) -> bool:
    is_recent = context.watched_since(context.query.run.started_at) <= LOST_IDENTITY_SECONDS
    return context.query.lost_identity and is_recent


def _went_back(context: RuleContext) -> Iterator[WentBack]:
    for trend in context.query.checkpoint.trends.sources:
        for partition, rewind in sorted(trend.rewound.items()):
            stuck = context.watched_since(rewind.since) > context.window.seconds
            if stuck and _stays(context, rewind):
                yield WentBack(_named(trend.description, partition), rewind.was, rewind.now)


def _stays(context: RuleContext, rewind: Rewind) -> bool:
    """Whether more batches ended there too, or the query was idle since then with no backlog."""
    idle_at = context.query.run.last_idle_at
    idle = idle_at is not None and idle_at > rewind.since and not context.query.run.holds_back
    return idle or rewind.batches >= MIN_BATCHES_REWOUND


def _ends_before(context: RuleContext) -> Iterator[EndsBefore]:
    """Count only the time between answered polls: a source that does not answer proves nothing."""
    for source in context.query.checkpoint.sources.values():
        polled_at = source.poll.at if source.poll is not None else context.now
        for partition, short in sorted(source.shortfalls.items()):
            seen = context.watched_since(short.since) - context.watched_since(polled_at)
            if short.polls >= MIN_POLLS and seen > context.window.seconds:
                where = _named(source.description, partition)
                yield EndsBefore(where, short.end, short.committed)


def _named(description: str, partition: str) -> str:
    return f"{description} {partition}" if partition != WHOLE else description


# -- slow ---------------------------------------------------------------------------------------


def batch_slow(context: RuleContext) -> Finding | None:
    """``StreamingBatchSlow``: a batch takes longer than the window, but it moves.

    Its tasks finish, or the thread that runs it uses CPU time: a loop of requests in
    ``foreachBatch``, the first listing of a folder, commit work in the driver. It is critical after
    ``slow_critical_seconds``, and if it repeats its jobs after ``stall_critical_seconds``.

    The first batch of a run may take long: it processes what arrived while the query was down, and
    the usual duration is not known yet. While its tasks finish, it is reported only when it is
    critical: it has been in flight for too long, or earlier processes planned it long ago and none
    of them committed it.
    """
    flight = context.query.run.in_flight
    if flight is None or not _is_slow(context, flight):
        return None
    never_committed = stuck_batch.not_committed(context, flight)
    critical = never_committed is not None or stuck_batch.is_critical_by_time(context, flight)
    may_catch_up = context.query.run.last_commit_at is None and flight.moves is Moves.TASKS
    if may_catch_up and not critical:
        return None
    severity = Severity.CRITICAL if critical else Severity.WARNING
    evidence = stuck_batch.batch_evidence(context, flight, severity)
    return report(context, BATCH_SLOW, severity, stuck_batch.slow(context, flight), evidence)


def _is_slow(context: RuleContext, flight: InFlight) -> bool:
    """Whether a batch has been in flight for longer than the window and still makes progress."""
    if not context.is_running or context.probe_is_stale:
        return False
    done = context.query.checkpoint.last_commit_batch
    if flight.batch_id is not None and done is not None and flight.batch_id <= done:
        # The batch is done: its event arrived before the next poll.
        return False
    moves = stuck_batch.moved_lately(context, flight)
    moves = moves or stuck_batch.may_get_executors(context, flight)
    return moves and stuck_batch.is_slow(context, flight)


def slots_held(
    victims: Sequence[Finding],
    waiting: Collection[str],
    findings: Mapping[tuple[str, str], Finding],
) -> Finding:
    """The finding about the query whose tasks hold the slots that ``waiting`` wait for.

    It is critical as soon as a victim is, or has waited for so long. If the holder has a finding
    about its batch of its own, that one says so too.
    """
    names = tuple(sorted(waiting))
    holder = victims[0].holder
    own = findings.get((holder, BATCH_SLOW)) or findings.get((holder, QUERY_STALLED))
    severities = [own.severity] if own is not None else []
    severities += [victim.severity for victim in victims]
    is_overdue = any(victim.pages_holder for victim in victims)
    is_critical = is_overdue or Severity.CRITICAL in severities
    severity = Severity.CRITICAL if is_critical else Severity.WARNING
    if own is None:
        held = SlotsHeld(slots=victims[0].evidence.slots, waiting=names)
        return finding_about(holder, BATCH_SLOW, severity, held)
    return replace(own, severity=severity, facts=replace(own.facts, waiting=names))
