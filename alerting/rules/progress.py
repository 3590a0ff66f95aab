"""Rules about batches and offsets that do not advance, or advance slowly or backwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from ...core.states import QueryState
from ...core.text import listed
from ...listener.offsets import WHOLE
from ...listener.probe_report import Moves
from ...listener.state.query import InFlight
from ...listener.state.trends import Rewind, SourceTrend
from ..alert_text import NEXT_STEPS
from ..finding import (
    BATCH_SLOW,
    OFFSETS_REWOUND,
    OFFSETS_STALLED,
    QUERY_STALLED,
    Finding,
    Severity,
    finding_about,
)
from ..policy import WINDOW_FACTOR
from . import stuck_batch
from .context import RuleContext
from .evidence import evidence, on_restart, report, with_age

# -- stalled ------------------------------------------------------------------------------------

SHARED_SILENCE = "the JVM does not answer"
SCHEDULER_STOPPED = "Spark's scheduler has stopped"
MIN_POLLS = 2


def query_stalled(context: RuleContext) -> Finding | None:
    """``StreamingQueryStalled``: no commit for the window W, and the query is not proven idle.

    The reason begins with a code:

    * ``scheduler_stopped``: the event loop of Spark's scheduler has ended, or is blocked, which
      holds the batches of all queries;
    * ``batch_hung``: a batch is in flight, none of its tasks has finished and its thread has not
      worked for W; a warning at first if the job's own Python is blocked, or Spark's thread tries
      again;
    * ``task_running``, ``no_executors``, ``waiting_for_slots``: the same, but a task of the batch
      runs, Spark has no executor, or other jobs hold all slots; these are warnings at first;
    * ``source_hung``: the query has been waiting for the offsets of a source for W;
    * ``no_trigger``: no batch is in flight and no trigger has started one;
    * ``commit_log_behind``: the commit log of the checkpoint does not advance, although batches run
      (async progress tracking) or epochs should (Continuous);
    * ``silent``: events, probe and commit log all show no activity.
    """
    if not context.is_running:
        return None
    reason = _log_behind(context) or (_epochs_stopped(context) if _is_continuous(context) else None)
    if reason is not None:
        return _stalled(context, reason)
    reason = None if _is_continuous(context) else _stalled_reason(context)
    if reason is None:
        return None
    flight = context.query.in_flight
    reason = stuck_batch.with_stop(with_age(reason, context), context)
    if flight is None or _is_blind(context, flight) or _waits_for_log(context):
        return _stalled(context, reason)
    holds_all = bool(stuck_batch.scheduler_text(context))
    severity = Severity.CRITICAL if holds_all else stuck_batch.stall_severity(context, flight)
    facts = stuck_batch.batch_evidence(context, flight, severity)
    if holds_all:
        return _stalled(context, reason, severity, facts, cause=SCHEDULER_STOPPED)
    finding = _stalled(context, reason, severity, facts)
    return replace(finding, holder=stuck_batch.to_page(context, flight))


def _is_blind(context: RuleContext, flight: InFlight) -> bool:
    """Whether nothing shows what the batch in flight waits for.

    A late poll does not change that the last one showed a delay, or what may wait outside: a pause
    of the JVM alone makes no such batch critical.
    """
    if not context.probe_is_stale:
        return False
    shown = stuck_batch.delay_text(context) or stuck_batch.may_wait_outside(context, flight)
    return context.driver_is_silent or not shown


def _stalled(
    context: RuleContext,
    reason: str,
    severity: Severity = Severity.CRITICAL,
    facts: dict[str, str] | None = None,
    *,
    cause: str = "",
) -> Finding:
    facts = (evidence(context) if facts is None else facts) | on_restart(context.query)
    cause = SHARED_SILENCE if context.driver_is_silent else cause
    return report(context, QUERY_STALLED, severity, reason, facts, cause=cause)


def _is_continuous(context: RuleContext) -> bool:
    return context.query.facts is not None and context.query.facts.trigger.is_continuous


def _epochs_stopped(context: RuleContext) -> str | None:
    """Only the commit log shows the progress of a Continuous query: None until it has been read."""
    query = context.query
    if query.logged_at is None or context.probe_is_stale:
        return None
    unseen = context.watched_since(query.logged_at)
    silence = context.watched_since(query.last_activity_at) - unseen
    if silence <= context.window.seconds:
        return None
    return f"commit_log_behind: no epoch committed for {silence:.0f} s"


def _log_behind(context: RuleContext) -> str | None:
    """Async progress tracking: poll after poll batches advanced, but the commit log did not.

    Spark may write the log rarely, so it may lag by its interval while batches run. Spark blocks
    the query when too many entries wait to be written; then only idleness excuses the log.
    """
    lag, facts = context.query.log_behind, context.query.facts
    if lag is None or lag.polls < MIN_POLLS or facts is None or _idle_since_commit(context):
        return None
    seconds = context.watched_since(lag.since) - _log_unread(context) - _in_flight(context)
    allowed = context.window.seconds
    if context.batches_come:
        allowed = max(allowed, facts.log_interval_seconds * WINDOW_FACTOR)
    if seconds <= allowed:
        return None
    logged = context.query.logged.committed if context.query.logged is not None else None
    where = "empty" if logged is None else f"at batch {logged}"
    return (
        f"commit_log_behind: the commit log has been {where} for {seconds:.0f} s, "
        f"while batches have reached {context.query.last_commit_batch}"
    )


def _log_unread(context: RuleContext) -> float:
    """Seconds since the log was last read: it may have advanced meanwhile."""
    logged_at = context.query.logged_at
    return 0.0 if logged_at is None else context.watched_since(logged_at)


def _in_flight(context: RuleContext) -> float:
    """Seconds of the batch in flight, unless it is critical: the log waits for it to finish."""
    flight = context.query.in_flight
    if flight is None or context.probe_is_stale or _waits_for_log(context):
        return 0.0
    delayed = stuck_batch.stall_severity(context, flight) is Severity.WARNING
    excused = delayed or stuck_batch.moved_lately(context, flight)
    return stuck_batch.lasted(context, flight) if excused else 0.0


def _idle_since_commit(context: RuleContext) -> bool:
    idle_at, commit_at = context.query.last_idle_at, context.query.last_commit_at
    return idle_at is not None and (commit_at is None or idle_at > commit_at)


def _silence(context: RuleContext) -> float:
    """Seconds since the last activity; a JVM that does not answer counts only after a window."""
    silence = context.watched_since(context.query.last_activity_at)
    if not context.probe_is_stale or context.received_at is None or context.driver_is_silent:
        return silence
    return silence - context.watched_since(context.received_at)


def _stalled_reason(context: RuleContext) -> str | None:
    """The reason, or None while the query may still make progress."""
    flight, silence = context.query.in_flight, _silence(context)
    if context.query.probed is None or context.probe_is_stale:
        at_work = (
            flight is not None and context.watched_since(flight.moved_at) <= context.window.seconds
        )
        if silence <= context.window.seconds or (at_work and not _waits_for_log(context)):
            return None
        return f"silent: no activity for {silence:.0f} s from events, probe or commit log"
    if flight is None:
        if silence <= context.window.seconds:
            return None
        return f"no_trigger: no batch in flight and no trigger for {silence:.0f} s"
    return _flight_reason(context, flight) if silence > context.batch_window.seconds else None


def _flight_reason(context: RuleContext, flight: InFlight) -> str | None:
    since = stuck_batch.lasted(context, flight)
    if _waits_for_log(context):
        return f"commit_log_behind: the next batch has waited for the commit log for {since:.0f} s"
    if stuck_batch.moved_lately(context, flight):
        return None
    what = (
        "planning the next batch"
        if flight.batch_id is None
        else f"batch {flight.batch_id} in flight"
    )
    what = f"{what} for {since:.0f} s"
    scheduler = stuck_batch.scheduler_text(context)
    if scheduler:
        return f"scheduler_stopped: {what}, {scheduler}"
    still, delay = stuck_batch.still(context, flight), stuck_batch.delay_text(context)
    if stuck_batch.has_no_executors(context) and still <= stuck_batch.AUTOSCALE_SECONDS:
        return None
    if delay is not None:
        code, facts = delay
        return f"{code}: {what}, {facts}, none finished for {still:.0f} s"
    return _hung_reason(context, flight, what)


def _hung_reason(context: RuleContext, flight: InFlight, what: str) -> str:
    """Why a batch, or its planning, in which nothing moves and that nothing delays, is hung."""
    place = stuck_batch.place_text(context)
    at = f", blocked at {place}" if place else ""
    if stuck_batch.tries_again(context, flight) and not stuck_batch.python_line(context):
        at = f", its thread in Spark tries again now and then{f' at {place}' if place else ''}"
    if flight.batch_id is None:
        probed = context.query.probed
        step = (probed.message if probed is not None else "") or "waiting for offsets"
        return f"source_hung: {step!r} for {stuck_batch.lasted(context, flight):.0f} s{at}"
    nothing = f"no task of its own finished for {stuck_batch.still(context, flight):.0f} s"
    if stuck_batch.counts_nothing(context):
        nothing = "Spark Connect does not show its tasks"
    return f"batch_hung: {what}, {nothing}{at}"


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
        for trend in context.query.trends.sources
        if trend.stuck and (partitions := _stuck(trend, context))
    ]
    if not stalled:
        return None
    reason = "; ".join(_stuck_text(trend, partitions) for trend, partitions in stalled)
    reason = f"{reason}, although batches run and data is unread"
    return report(context, OFFSETS_STALLED, Severity.CRITICAL, reason)


def _stuck(trend: SourceTrend, context: RuleContext) -> dict[str, float]:
    """Seconds for which each stalled partition has not advanced."""
    return {
        partition: seconds
        for partition, stuck in trend.stuck.items()
        if stuck.batches >= MIN_BATCHES_STUCK
        and (seconds := context.watched_since(stuck.since)) > context.window.seconds
    }


def _stuck_text(trend: SourceTrend, partitions: dict[str, float]) -> str:
    names = listed(sorted(partitions), MAX_NAMED) or "its offset"
    have = "has" if len(partitions) == 1 else "have"
    longest = max(partitions.values())
    return f"{trend.description}: {names} {have} not advanced for {longest:.0f} s"


# -- offsets rewound ----------------------------------------------------------------------------

MIN_BATCHES_REWOUND = 2


LOST_IDENTITY_SECONDS = 3600.0
"""How long it is reported: the risk is past with the first batch of the run."""
STEPS_OF_LOST_IDENTITY = (
    "1. Find out what deleted the file metadata of the checkpoint, such as a lifecycle rule.\n"
    "2. Look for rows that the first batch of this run has written twice.\n"
    "3. Exclude the checkpoint from the rule: it deletes the other files next."
)
"""Next steps where only the query id of the checkpoint was lost."""


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
    texts = [*_went_back(context), *_ends_before(context)]
    lost_id = _lost_identity(context)
    if not texts and not lost_id:
        return None
    reason, facts = "; ".join(filter(None, [*texts[:3], lost_id])), evidence(context)
    words: dict[str, Any] = {}
    if not texts:
        facts |= {"id_before": context.query.id_before, NEXT_STEPS: STEPS_OF_LOST_IDENTITY}
        words = {"does": "may have written a batch twice", "state": QueryState.RUNNING}
    return report(context, OFFSETS_REWOUND, Severity.WARNING, reason, facts, **words)


def _lost_identity(context: RuleContext) -> str:
    query = context.query
    is_recent = context.watched_since(query.started_at) <= LOST_IDENTITY_SECONDS
    if not query.lost_identity or not is_recent:
        return ""
    return (
        f"its checkpoint {query.checkpoint} has a new query id, although batch ids go on: "
        "a sink that remembers batches by query id (Delta's txnAppId) accepts the first one again"
    )


def _went_back(context: RuleContext) -> Iterator[str]:
    for trend in context.query.trends.sources:
        for partition, rewind in sorted(trend.rewound.items()):
            stuck = context.watched_since(rewind.since) > context.window.seconds
            if stuck and _stays(context, rewind):
                where = _named(trend.description, partition)
                yield f"{where} went back from {rewind.was} to {rewind.now}"


def _stays(context: RuleContext, rewind: Rewind) -> bool:
    """Whether more batches ended there too, or the query was idle since then with no backlog."""
    idle_at = context.query.last_idle_at
    idle = idle_at is not None and idle_at > rewind.since and not context.query.holds_back
    return idle or rewind.batches >= MIN_BATCHES_REWOUND


def _ends_before(context: RuleContext) -> Iterator[str]:
    """Count only the time between answered polls: a source that does not answer proves nothing."""
    for source in context.query.sources.values():
        polled_at = source.poll.at if source.poll is not None else context.now
        for partition, short in sorted(source.shortfalls.items()):
            seen = context.watched_since(short.since) - context.watched_since(polled_at)
            if short.polls >= MIN_POLLS and seen > context.window.seconds:
                where = _named(source.description, partition)
                yield (
                    f"{where} ends at {short.end}, but was read up to {short.committed}: "
                    "it was replaced, or restored from a copy"
                )


def _named(description: str, partition: str) -> str:
    return f"{description} {partition}" if partition != WHOLE else description


# -- slow ---------------------------------------------------------------------------------------

WAITING = "waiting"
"""The evidence of a query that holds the slots: who waits for them."""


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
    flight = context.query.in_flight
    if flight is None or not _is_slow(context, flight):
        return None
    never_committed = stuck_batch.not_committed(context, flight)
    critical = bool(never_committed) or stuck_batch.is_critical_by_time(context, flight)
    may_catch_up = context.query.last_commit_at is None and flight.moves is Moves.TASKS
    if may_catch_up and not critical:
        return None
    severity = Severity.CRITICAL if critical else Severity.WARNING
    retries = stuck_batch.retries_text(context, flight)
    seconds = stuck_batch.lasted(context, flight)
    is_planned = flight.batch_id is not None
    what = f"batch {flight.batch_id} in flight" if is_planned else "planning the next batch"
    reason = f"{what} for {seconds:.0f} s, {stuck_batch.moves_text(context, flight)}"
    if retries:
        reason = f"retrying: {reason}, {retries}"
    elif never_committed:
        reason = f"not_committed: {reason}, {never_committed}"
    reason = stuck_batch.with_stop(reason, context)
    facts = stuck_batch.batch_evidence(context, flight, severity)
    return report(context, BATCH_SLOW, severity, reason, facts)


def _is_slow(context: RuleContext, flight: InFlight) -> bool:
    """Whether a batch has been in flight for longer than the window and still makes progress."""
    if not context.is_running or context.probe_is_stale:
        return False
    done = context.query.last_commit_batch
    if flight.batch_id is not None and done is not None and flight.batch_id <= done:
        # The batch is done: its event arrived before the next poll.
        return False
    return stuck_batch.is_slow(context, flight) and stuck_batch.moved_lately(context, flight)


def slots_held(
    holder: str, victims: list[Finding], findings: Mapping[tuple[str, str], Finding]
) -> Finding:
    """The critical finding about a query whose tasks hold the slots that ``victims`` wait for.

    If it has a finding about its batch of its own, that one says so too.
    """
    names = ", ".join(sorted(victim.query for victim in victims))
    reason = f"slots_held: its tasks hold the slots that {names} wait for"
    own = findings.get((holder, BATCH_SLOW)) or findings.get((holder, QUERY_STALLED))
    if own is None:
        facts = {WAITING: names, "slots": victims[0].evidence["slots"]}
        does = "keeps others from running"
        return finding_about(holder, BATCH_SLOW, Severity.CRITICAL, reason, facts, does=does)
    return replace(
        own,
        severity=Severity.CRITICAL,
        reason=f"{own.reason}; {names} wait for its slots",
        summary=f"{own.summary}; {names} wait for its slots",
        evidence={**own.evidence, WAITING: names},
    )
