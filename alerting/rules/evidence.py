"""Collects the evidence of a finding about one query, and what a restart repeats."""

from __future__ import annotations

from statistics import median

from msgspec.structs import replace

from ...core.states import QueryState
from ...listener.foresight.catching_up import NOW, caught_up
from ...listener.foresight.operators import oldest_uploads
from ...listener.probe_report import JobActivity, ProbedRun
from ...listener.state.flow import TOPIC, Dataset, PlanDatasets
from ...listener.state.query import CLOCKS_DIFFER_SECONDS, Query
from ..evidence import (
    Activity,
    CatchingUp,
    CommitLog,
    CommitSeen,
    Evidence,
    LastCommit,
    OnRestart,
    QueryEvidence,
    RunEvidence,
    Signal,
    SourceBacklog,
    SourceLag,
    StateSnapshots,
)
from ..facts import BatchIdsWentBack, Facts, Unfinished
from ..finding import Finding, Severity, finding_about
from ..kinds import BATCH_SLOW, DATA_LOSS_RISK, QUERY_FALLING_BEHIND, QUERY_LAGGING, SharedCause
from ..policy import Window
from .causes import why_slow
from .context import RuleContext

BEHIND = frozenset({QUERY_LAGGING, BATCH_SLOW, DATA_LOSS_RISK, QUERY_FALLING_BEHIND})
"""Who is notified of these asks when the query has caught up."""


def report(
    context: RuleContext,
    alertname: str,
    severity: Severity,
    facts: Facts,
    evidence: Evidence | None = None,
    *,
    state: QueryState | None = None,
    shared: SharedCause | None = None,
    is_past: bool = False,
) -> Finding:
    """Return the finding of a rule about one query, with its evidence unless that is given."""
    evidence = collect(context) if evidence is None else evidence
    if evidence.query is not None:
        catching_up = _catching_up(context) if alertname in BEHIND else None
        slow = why_slow(context, facts)
        query = replace(evidence.query, catching_up=catching_up, slowness=slow)
        evidence = replace(evidence, query=query)
    return finding_about(
        context.query.label,
        alertname,
        severity,
        facts,
        evidence,
        state=state,
        shared=shared,
        is_past=is_past,
    )


def collect(
    context: RuleContext, window: Window | None = None, *, with_restart: bool = False
) -> Evidence:
    """Collect what is known of the query.

    ``window`` is the window of the finding, if it is not the query's own. ``with_restart``: also
    what a restart repeats.
    """
    query = query_evidence(context, context.window if window is None else window)
    restart = on_restart(context.query) if with_restart else None
    return Evidence(query=query, on_restart=restart)


def query_evidence(context: RuleContext, window: Window) -> QueryEvidence:
    """Collect the facts about one query; ``window`` is that of the finding."""
    query = context.query
    probed = query.run.probed
    run_facts = query.run.facts
    reads: tuple[str, ...] = ()
    if query.is_unnamed and query.run.progress is not None:
        reads = tuple(source.description for source in query.run.progress.sources)
    return QueryEvidence(
        query_id=query.query_id,
        run_id=query.run.run_id,
        last_commit=_last_commit(context),
        window=window,
        unfinished=unfinished(context),
        ids_went_back=ids_went_back(query),
        lags=_lags(context),
        backlogs=_backlogs(context),
        state_snapshots=_state_snapshots(query),
        sources_unread=query.run.source_trouble,
        signals=_signals(context),
        inputs=_inputs(query),
        outputs=query.checkpoint.datasets.writes,
        reads=reads,
        trigger=None if run_facts is None else run_facts.trigger,
        sink="" if run_facts is None else run_facts.sink,
        checkpoint="" if run_facts is None else run_facts.checkpoint,
        committed_offsets="" if probed is None else probed.committed_offsets,
        run=_run(context) if query.run.alive else None,
    )


def _inputs(query: Query) -> tuple[Dataset, ...]:
    """What it reads; before its first batch, Spark shows only the brokers of its topics."""
    plan = PlanDatasets() if query.run.facts is None else query.run.facts.plan
    brokers = tuple(Dataset(TOPIC, "", cluster) for cluster in plan.brokers)
    return query.checkpoint.datasets.reads or (*plan.reads, *brokers)


def ids_went_back(query: Query) -> BatchIdsWentBack | None:
    """Return how far batch ids went back, until the run reaches the old ones; None if not at all.

    A run under an old name has a new checkpoint. A sink that remembers ids skips its batches until
    then (Spark's file sink, Hudi, Delta).
    """
    earlier = query.history.earlier_batch
    first = query.run.first_batch
    newest = query.run.last_commit_batch
    if earlier is None or first is None or newest is None or newest >= earlier:
        return None
    if query.run.facts is not None and query.run.facts.async_progress:
        return None
    return BatchIdsWentBack(earlier=earlier, first=first)


def _last_commit(context: RuleContext) -> LastCommit:
    query = context.query
    batch = query.checkpoint.last_commit_batch
    if batch is not None and query.run.last_commit_at is not None:
        return LastCommit(CommitSeen.BY_THIS_RUN, batch, context.now - query.run.last_commit_at)
    newest = query.checkpoint.newest_commit
    if newest is not None and newest[0] == batch:
        return LastCommit(CommitSeen.BY_EARLIER_RUN, batch, context.now - newest[1])
    logged = (
        query.checkpoint.start_point.committed if query.checkpoint.start_point is not None else None
    )
    if logged is not None and logged.at is not None and batch in (None, logged.batch_id):
        return LastCommit(CommitSeen.IN_CHECKPOINT, logged.batch_id, context.now - logged.at)
    if batch is None:
        return LastCommit(CommitSeen.NEVER)
    was_polled = query.run.start is not None
    return LastCommit(CommitSeen.BEFORE_POLL if was_polled else CommitSeen.BEFORE_WATCHING, batch)


def _run(context: RuleContext) -> RunEvidence:
    """What the run is doing: its batch, the newest batches in its checkpoint, its jobs."""
    query = context.query
    flight = query.run.in_flight
    log = query.run.logged
    return RunEvidence(
        is_in_flight=flight is not None,
        batch_id=None if flight is None else flight.batch_id,
        in_flight_seconds=0.0 if flight is None else context.now - flight.since,
        commit_log=None if log is None else CommitLog(log.planned, log.committed),
        spark_says="" if query.run.probed is None else query.run.probed.message,
        activity=None if context.work is None else _activity(context.work),
    )


def _activity(work: JobActivity) -> Activity:
    return Activity(work.own, work.unowned, work.counted, work.python_line, work.jvm_stack)


def _lags(context: RuleContext) -> tuple[SourceLag, ...]:
    """Lag and its age by source: polled where the source answers, else as Spark reported it."""
    query = context.query
    sources = query.run.progress.sources if query.run.progress is not None else ()
    age = _progress_age(context)
    lags = {
        index: SourceLag(source.description, source.lag_offsets, age, is_polled=False)
        for index, source in enumerate(sources)
        if source.lag_offsets is not None
    }
    lags |= {
        index: SourceLag(
            poll.description,
            poll.lag_offsets,
            context.now - poll.at,
            is_polled=True,
            unit=poll.unit,
        )
        for index, poll in query.checkpoint.polls.items()
        if poll.lag_offsets is not None
    }
    return tuple(lags[index] for index in sorted(lags))


def _progress_age(context: RuleContext) -> float | None:
    at = context.query.run.progress_at
    return None if at is None else context.now - at


def _backlogs(context: RuleContext) -> tuple[SourceBacklog, ...]:
    """The backlog in files and bytes and its age, for sources that report one."""
    query = context.query
    age = _progress_age(context)
    return tuple(
        SourceBacklog(source.description, source.backlog_files, source.backlog_bytes, age)
        for source in (query.run.progress.sources if query.run.progress is not None else ())
        if source.backlog_files is not None or source.backlog_bytes is not None
    )


LATE_BATCHES = 50
LATE_SECONDS = 600.0
"""From both on, Spark's own state store coordinator calls a snapshot late, by default."""


def _state_snapshots(query: Query) -> StateSnapshots | None:
    """The snapshot of its state that is the oldest, if a recovery from it is slow."""
    run = query.run
    progress = run.progress
    durations = query.history.recent_batches
    if progress is None or not progress.operators or not durations:
        return None
    first = progress.batch_id if run.first_batch is None else run.first_batch
    ages = oldest_uploads(progress.operators, progress.batch_id, first)
    if not ages:
        return None
    label, age = max(ages.items(), key=lambda entry: entry[1].batches)
    seconds = age.batches * median(durations)
    if age.batches < LATE_BATCHES or seconds < LATE_SECONDS:
        return None
    return StateSnapshots(label, age.partition, age.batches, seconds, age.is_none)


def _catching_up(context: RuleContext) -> CatchingUp | None:
    answer = caught_up(context.query, context.now)
    if answer is None or answer == NOW:
        return None
    snapshot = context.snapshot
    wall = None if snapshot.wall is None else snapshot.wall + context.now - snapshot.at
    return CatchingUp(answer, wall)


def _signals(context: RuleContext) -> tuple[Signal, ...]:
    """Which signals have been received, and how long ago: the evaluation is based on these."""
    query = context.query
    received = {
        "event": query.run.last_event_at,
        "probe": query.run.probed_at,
        "commit log": query.run.logged_at,
    }
    return tuple(Signal(name, context.now - at) for name, at in received.items() if at is not None)


# -- over restarts ----------------------------------------------------------------------------
# The checkpoint alone shows such a batch, so querypulse needs no stored state. It does not show why
# the last process ended: a planned stop in the middle of a batch leaves the same files as a crash.
# So an old plan raises no alert by itself; it shows how old the batch is that fails or is stuck.


def unfinished(context: RuleContext) -> Unfinished | None:
    """The uncommitted batch that an earlier process planned longer than the window ago."""
    query, point = context.query, context.query.checkpoint.start_point
    batch = point.unfinished if point is not None else None
    if batch is None or batch.at is None:
        return None
    if (
        query.checkpoint.last_commit_batch is not None
        and query.checkpoint.last_commit_batch >= batch.batch_id
    ):
        return None
    # A run that was active before monitoring began may have planned the batch itself.
    was_active = query.run.start is None and not query.history.totals.restarts
    if was_active or batch.at > context.snapshot.began_at - CLOCKS_DIFFER_SECONDS:
        return None
    if (
        query.checkpoint.newest_commit is not None
        and query.checkpoint.newest_commit[0] < batch.batch_id
    ):
        # This process planned it after that commit, whatever the clock of the storage shows.
        return None
    age = context.now - batch.at
    return Unfinished(batch.batch_id, age) if age > context.window.seconds else None


# -- on restart -------------------------------------------------------------------------------
# What a restart repeats: batches that are planned but not committed, and their offsets.
#
# Spark writes ``offsets/N`` when it plans batch N and ``commits/N`` when the batch is done; a new
# run begins with the batch after the last commit and its planned offsets (``MicroBatchExecution``).
# Async progress tracking writes both only at intervals, so several batches may run again.


def on_restart(query: Query) -> OnRestart | None:
    """Return what a restart of the query repeats; None if it is not known."""
    probed = query.run.probed
    if probed is None or probed.facts.trigger.is_continuous or probed.facts.trigger.is_real_time:
        return None
    if not probed.facts.async_progress:
        batch = _planned(query, probed)
        if batch is None:
            return None
        return OnRestart(batch, batch, probed.committed_offsets, probed.available_offsets)
    last = query.checkpoint.last_commit_batch
    missing = query.batches_not_durable
    if last is None or not missing:
        return None
    return OnRestart(last - missing + 1, last, is_done=True)


def _planned(query: Query, probed: ProbedRun) -> int | None:
    """The batch that is planned but not committed; None if no such batch is known."""
    after_commit = (
        -1 if query.checkpoint.last_commit_batch is None else query.checkpoint.last_commit_batch
    )
    log = query.run.logged
    if log is not None and log.planned is not None and log.planned > after_commit:
        return log.planned
    flight = query.run.in_flight
    in_flight = flight.batch_id if flight is not None else None
    if query.run.alive:
        batch = in_flight
    else:
        # The last report of a run names its batch, whether it was planned or not.
        has_plan = probed.available_offsets not in ("", probed.committed_offsets)
        batch = probed.batch_id if not probed.active and has_plan else in_flight
    return batch if batch is not None and batch > after_commit else None
