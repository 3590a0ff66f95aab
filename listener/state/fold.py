"""Applies one observation to one query and returns the new query.

Events and probe report the same facts with different delays, so state only moves forward: a
commit counts when its batch id is new, an end counts once, and an observation of another run
never changes this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from msgspec.structs import replace

from ..commit_log import LoggedBatches, LogReport, SinkLog, without_own_plan
from ..events import Event, Idle, Progress, SourceProgress, Started, Terminated
from ..failure import SESSION_ENDED, Failure, describe_failure, died_of_stopped_context
from ..foresight.intake import Intake, follow_polled, follow_reported, is_due
from ..foresight.phases import follow_phases, follow_tasks
from ..foresight.state_growth import follow_growth
from ..foresight.tasks import follow_sums
from ..offsets import BASE_INDEX, WHOLE, Offsets, unread_from
from ..probe_report import Context, ProbedRun, SessionEnd
from ..source_polls import SourcePoll
from .flow import PlanDatasets, datasets_of
from .history import (
    RECENT_BATCHES,
    UNKNOWN_BATCH,
    Checkpoint,
    History,
    count_batch,
    count_failure,
    count_run,
    latest,
    learn,
    learn_jobs,
    recovered,
)
from .inputs import follow_inputs, had_input
from .positions import Reading, compare, continued, follow_batch, follow_poll, of_topics_read
from .query import CLOCKS_DIFFER_SECONDS, Query, pace_of, with_reading
from .run import Ended, LogBehind, Outcome, Run, SkippedBatches, UnreportedCommit, follow_in_flight
from .sources import PolledSource, between_runs, follow_source
from .trends import MUCH_LATE, LateShare, Trends, answers, follow, follow_polls, learn_late

# -- ending -----------------------------------------------------------------------------------


def end(
    query: Query,
    exception: str | None,
    error_class: str | None,
    at: float,
    *,
    signal: str,
    context: Context = Context.RUNNING,
) -> Query:
    """Record the end of the run; a second signal of the same end changes nothing."""
    if query.run.ended is not None:
        return query
    outcome, failure = _outcome(query.run, exception, error_class, context)
    run = replace(query.run, ended=Ended(at, outcome, signal, failure))
    history = count_run(query.history, outcome)
    if run.is_done_with:
        history = recovered(history)
    elif failure is not None:
        history = count_failure(history, failure, at, _batch_at_failure(query))
    return replace(query, run=run, history=history)


def with_batch_of_failure(query: Query) -> Query:
    """Update the batch that the run failed in, which may become known after its end."""
    ended = query.run.ended
    failures = query.history.failures
    if ended is None or not failures or failures[-1].at != ended.at:
        return query
    *before, last = failures
    batch_id = _batch_at_failure(query)
    if batch_id <= last.batch_id:
        return query
    failures = (*before, replace(last, batch_id=batch_id))
    return replace(query, history=replace(query.history, failures=failures))


def expect_stop(query: Query, until: float = inf) -> Query:
    """Record that the run will be stopped on purpose before ``until``, or just was.

    Of two announcements, the one that holds longer counts.
    """
    if query.run.stop_expected:
        until = max(until, query.run.stop_expected_until)
    run = replace(query.run, stop_expected=True, stop_expected_until=until)
    history = recovered(query.history) if run.is_done_with else query.history
    return replace(query, run=run, history=history)


def session_ended(query: Query, ended: SessionEnd) -> Query:
    """Record the end of the session that started its run, where that may have stopped it.

    A client that ends its session wants that, as a job that stops its SparkContext does. What had
    stopped before a session expired has another cause.
    """
    run = query.run
    was_stopped = run.vanished_at is not None
    if run.ended is not None:
        was_stopped = run.ended.outcome is Outcome.STOPPED
    if not was_stopped or run.session_end is not None:
        return query
    if not ended.is_expired:
        query = expect_stop(query)
    elif run.gone_or_started_at < ended.at - CLOCKS_DIFFER_SECONDS:
        return query
    return replace(query, run=replace(query.run, session_end=ended))


def replaced_by(query: Query, label: str, at: float) -> Query:
    """Record that Spark stopped its run to start the query of ``label`` on its checkpoint."""
    query = end(query, None, None, at, signal="event")
    return replace(query, run=replace(query.run, taken_by=label))


def end_past_run(
    query: Query, event: Terminated, at: float, *, signal: str, context: Context
) -> Query:
    """Record the late end of an earlier run: Spark posts starts at once and queues ends.

    A failure stays unrecovered until the current run shows activity, as if it came in time.
    """
    run = query.run
    outcome, failure = _outcome(run, event.exception, event.error_class, context)
    unended = query.history.unended_runs
    completed_at = at if outcome is Outcome.COMPLETED else None
    history = replace(
        count_run(query.history, outcome),
        completed_at=latest(query.history.completed_at, completed_at),
        unended_runs=tuple(run_id for run_id in unended if run_id != event.run_id),
    )
    if failure is not None:
        is_over = run.activity_seen or run.is_done_with
        batch_id = _batch_at_failure(query)
        history = count_failure(history, failure, at, batch_id, is_unrecovered=not is_over)
        if not is_over:
            history = replace(history, unrecovered=Ended(at, outcome, signal, failure))
    return replace(query, history=history)


def _batch_at_failure(query: Query) -> int:
    """The last batch seen in flight, or the one after the last commit if that is later.

    ``UNKNOWN_BATCH`` until any signal shows where the run began.
    """
    run = query.run
    committed = query.checkpoint.last_commit_batch
    point = query.checkpoint.start_point
    if committed is None and point is not None and point.committed is not None:
        committed = point.committed.batch_id
    flying = run.in_flight.batch_id if run.in_flight is not None else None
    probed = run.probed
    polled = probed is not None and probed.has_batch_id and not probed.facts.trigger.is_continuous
    if committed is None and flying is None and point is None and not polled:
        return UNKNOWN_BATCH
    return max(0 if committed is None else committed + 1, flying or 0)


def _outcome(
    run: Run, exception: str | None, error_class: str | None, context: Context
) -> tuple[Outcome, Failure | None]:
    if exception is None:
        finite = run.trigger is not None and run.trigger.ends_by_itself
        return (Outcome.COMPLETED if finite else Outcome.STOPPED), None
    if context is not Context.RUNNING and died_of_stopped_context(exception):
        return Outcome.STOPPED, None
    if error_class == SESSION_ENDED and run.stop_expected:
        return Outcome.STOPPED, None
    return Outcome.FAILED, describe_failure(exception, error_class)


# -- fold sources -----------------------------------------------------------------------------


def fold_sources(query: Query, polls: Mapping[int, SourcePoll], trouble: str) -> Query:
    """Apply the newest polls of the sources of the query's run."""
    run = query.run
    if trouble != run.source_trouble:
        run = replace(run, source_trouble=trouble)
    if polls == query.checkpoint.polls:
        return query if run is query.run else replace(query, run=run)
    before = query.checkpoint.sources
    followed = {index: follow_source(before.get(index), poll) for index, poll in polls.items()}
    loop_began = run.loop_began
    checkpoint = replace(
        query.checkpoint,
        sources={**between_runs(before), **followed},
        trends=follow_polls(query.checkpoint.trends, before, followed, loop_began=loop_began),
        intakes=follow_polled(query.checkpoint.intakes, followed, pace_of(query, run.progress)),
    )
    query = with_reading(query, _read_up_to(query, polls))
    return _with_begin(replace(query, run=run, checkpoint=checkpoint))


def _read_up_to(query: Query, polls: Mapping[int, SourcePoll]) -> Reading:
    reading = query.history.reading
    before = query.checkpoint.polls
    for index, poll in sorted(polls.items()):
        last = before.get(index)
        if last is None or poll.at > last.at:
            ended = _ended_since(query.run, index, poll.at)
            reading = follow_poll(reading, index, poll, last, ended)
    progress = query.run.progress
    ends = () if progress is None else progress.sources
    read = {name for source in ends for name in unread_from(source.end)}
    return of_topics_read(reading, polls, read)


def _ended_since(run: Run, index: int, at: float) -> dict[str, int]:
    """Where a batch of a source ended, if its event arrived after ``at``."""
    progress = run.progress
    arrived = run.progress_at
    if progress is None or arrived is None or arrived <= at or index >= len(progress.sources):
        return {}
    return unread_from(progress.sources[index].end)


def _with_begin(query: Query) -> Query:
    """The query, compared with its checkpoint before once it is known where this one begins."""
    point = query.checkpoint.start_point
    reading = query.history.reading
    if reading.earlier is None or point is None:
        return query
    polls = query.checkpoint.polls
    facts = query.run.facts
    reading = compare(
        reading,
        {index: poll.begins for index, poll in polls.items() if poll.begins} | point.begins,
        polls,
        session=query.run.session,
        is_temporary=facts is not None and facts.is_temporary,
    )
    return with_reading(query, reading)


def _with_latest(
    progress: Progress, polled: Mapping[int, PolledSource], loop_began: float | None
) -> Progress:
    """A batch with the latest offsets of its sources, as of the last poll before it ended.

    A trigger that ends by itself reads only the data present at its start (``availableNow``), so
    later data is not unread.
    """
    if loop_began is not None:
        sources = tuple(replace(source, latest=None) for source in progress.sources)
    elif polled:
        sources = tuple(
            _polled(source, polled.get(index)) for index, source in enumerate(progress.sources)
        )
    else:
        return progress
    return replace(progress, sources=sources)


def _polled(source: SourceProgress, polled: PolledSource | None) -> SourceProgress:
    """The source of a Delta table with its newest version, which Spark does not report."""
    newest = polled.poll.latest.get(WHOLE) if polled is not None and polled.poll else None
    if source.latest is not None or newest is None or not isinstance(source.end, dict):
        return source
    # The version before its first file is beyond everything in earlier versions. A position in an
    # Iceberg table has no version, only a file.
    latest: Offsets = {
        key: (newest, BASE_INDEX)
        for key, end in source.end.items()
        if isinstance(end, tuple) and len(end) > 1
    }
    return replace(source, latest=latest) if latest else source


# -- begin ------------------------------------------------------------------------------------


def begun(query: Query, batch_id: int) -> Query:
    """Apply the first batch that shows where a run with a new id began in its old folder.

    If batch ids do not go on, the folder was emptied: nothing of the old checkpoint is left.
    """
    checkpoint = query.checkpoint
    last = checkpoint.last_commit_batch
    if not checkpoint.id_before or query.run.has_batch or last is None:
        return query
    if batch_id > last:
        query = with_reading(query, continued(query.history.reading))
        return replace(query, run=replace(query.run, goes_on=True))
    return replace(query, checkpoint=Checkpoint(start_point=checkpoint.start_point))


# -- fold events ------------------------------------------------------------------------------


TOGETHER_SECONDS = 1.0
"""Events that are late come together, and a poll of Spark Connect may bring two at once."""


def fold_event(query: Query, event: Event, at: float, *, context: Context) -> Query:
    """Apply an event of the query's run, received at ``at``."""
    event_at = max(at, query.run.last_event_at or at)
    if isinstance(event, Progress) and event.committed:
        return _with_datasets(_fold_batch(query, event, at, event_at))
    run = replace(query.run, last_event_at=event_at)
    if isinstance(event, Started):
        return replace(query, name=event.name or query.name, run=replace(run, start=event))
    if isinstance(event, Idle):
        return _idle(replace(query, run=run), _no_later_than_flight(run, at))
    if isinstance(event, Progress):
        query = replace(query, name=event.name or query.name, run=run)
        return _with_datasets(_idle(query, at))
    reading = replace(query.history.reading, is_over=True)
    query = with_reading(replace(query, run=run), reading)
    return end(query, event.exception, event.error_class, at, signal="event", context=context)


def _no_later_than_flight(run: Run, at: float) -> float:
    """Limit ``at`` to the start of the batch in flight: an idle event is older than that batch."""
    return at if run.in_flight is None else min(at, run.in_flight.since)


def _fold_batch(query: Query, progress: Progress, at: float, event_at: float) -> Query:
    """Apply a committed batch; ``event_at`` is the newest arrival of an event of its run."""
    query = begun(query, progress.batch_id)
    seconds = observed_seconds(query.run, progress, at)
    if seconds != progress.batch_seconds:
        progress = replace(progress, batch_seconds=seconds)
    query = _committed_by_event(query, progress.batch_id, at)
    history = learn(query.history, seconds, at)
    recent = history.recent_batches if seconds is None else (*history.recent_batches, seconds)
    reading = history.reading
    late_share = history.late_share
    inputs = follow_inputs(query.checkpoint.inputs, progress, at)
    trends = query.checkpoint.trends
    intakes = query.checkpoint.intakes
    batches = query.checkpoint.batches
    growth = query.checkpoint.growth
    run = query.run
    newest = run.progress
    unreported = run.unreported
    if newest is None or progress.batch_id >= newest.batch_id:
        reading = follow_batch(reading, progress, at, is_first=newest is None)
        late_share = learn_late(late_share, progress, at)
        trends = _trends(query, progress, at, late_share)
        intakes = _intakes(query, progress, at)
        batches = follow_phases(batches, progress)
        growth = follow_growth(growth, progress, at, history.totals.input_rows)
        newest = progress
        if unreported is not None and progress.batch_id >= unreported.batch_id:
            unreported = None
    return replace(
        query,
        name=progress.name or query.name,
        history=replace(
            history,
            reading=reading,
            late_share=late_share,
            recent_batches=recent[-RECENT_BATCHES:],
            totals=count_batch(history.totals, progress),
        ),
        checkpoint=replace(
            query.checkpoint,
            inputs=inputs,
            trends=trends,
            intakes=intakes,
            batches=batches,
            growth=growth,
        ),
        run=replace(
            run,
            last_event_at=event_at,
            last_input_at=at if had_input(inputs, progress, at) else run.last_input_at,
            progress=newest,
            progress_at=at if newest is progress else run.progress_at,
            unreported=unreported,
        ),
    )


def _intakes(query: Query, progress: Progress, at: float) -> dict[int, Intake]:
    """Follow the lag that Spark reports of sources that do not answer polls."""
    intakes = query.checkpoint.intakes
    due = {
        index: source
        for index, source in enumerate(progress.sources)
        if is_due(intakes.get(index), source, at)
        and not answers(query.checkpoint.sources.get(index), at)
    }
    return follow_reported(intakes, due, at, pace_of(query, progress)) if due else intakes


def _trends(query: Query, progress: Progress, at: float, late: LateShare | None) -> Trends:
    sources = query.checkpoint.sources
    trigger = query.run.trigger
    loop_began = query.run.started_at if trigger is not None and trigger.ends_by_itself else None
    return follow(
        query.checkpoint.trends,
        _with_latest(progress, sources, loop_began),
        at,
        sources,
        interval=trigger.interval_seconds if trigger is not None else 0.0,
        loop_began=loop_began,
        late_limit=MUCH_LATE if late is None else late.limit,
    )


def observed_seconds(run: Run, progress: Progress, at: float) -> float | None:
    """How long the batch took, by Spark's wall clock, which may be set meanwhile.

    So it counts at most as long as we observed: since the batch before it arrived, unless they
    came together, else since its run began.
    """
    if progress.batch_seconds is None:
        return None
    before = run.progress_at
    alone = before is not None and at - before >= TOGETHER_SECONDS
    since = before if before is not None and alone else run.started_at
    return max(0.0, min(progress.batch_seconds, at - since))


# -- fold polls and readings ------------------------------------------------------------------


def fold_probe(query: Query, polled: ProbedRun, at: float, *, context: Context) -> Query:
    """Apply one probe poll of the query's run."""
    has_batches = not polled.facts.trigger.is_continuous
    if has_batches and polled.batch_id is not None and polled.has_batch_id:
        query = begun(query, polled.batch_id)
    run = query.run
    previous = run.probed
    shows_work = polled.active and has_batches
    run = replace(
        run,
        facts=polled.facts,
        probed=polled,
        probed_at=at,
        in_flight=follow_in_flight(run, polled, at) if shows_work else run.in_flight,
        stopping_since=run.stopping_since or (at if polled.stopping else None),
        vanished_at=None,
    )
    name = polled.facts.name or query.name
    history = _with_tasks(learn_jobs(query.history, run.in_flight), previous, polled)
    checkpoint = query.checkpoint
    batches = follow_tasks(checkpoint.batches, polled.tasks)
    if batches is not checkpoint.batches:
        checkpoint = replace(checkpoint, batches=batches)
    query = replace(query, name=name, run=run, history=history, checkpoint=checkpoint)
    query = _with_datasets(query)
    if polled.batch_id is not None and polled.batch_id > 0 and has_batches:
        query = _committed_by_probe(query, previous, polled.batch_id - 1, at)
    query = with_batch_of_failure(query)
    if polled.active:
        is_idle = polled.waiting_without_data or _moved_on(previous, polled)
        return _idle(query, at) if is_idle else query
    if context is Context.TERMINATED and polled.exception is not None:
        # Shutdown hooks stop the listener bus and then delete temporary folders, which fails the
        # queries that use them. A failure before that has posted an event.
        return query
    return end(query, polled.exception, polled.error_class, at, signal="probe", context=context)


def _with_tasks(history: History, previous: ProbedRun | None, polled: ProbedRun) -> History:
    """The history with the sums of finished tasks, which stay the same record until one ends."""
    before = None if previous is None else previous.tasks
    if polled.tasks is None or polled.tasks is before:
        return history
    return replace(history, spent=follow_sums(history.spent, polled.tasks.sums))


def _moved_on(previous: ProbedRun | None, polled: ProbedRun) -> bool:
    """Whether Spark recorded a progress, idle ones included, between two polls."""
    mark = previous.last_progress_mark if previous is not None else ""
    return bool(mark) and polled.last_progress_mark > mark


def fold_logs(query: Query, report: LogReport) -> Query:
    """Apply one round of checkpoint reading to the query's run, which may be over."""
    run_id = query.run.run_id
    start_point = report.starts.get(run_id)
    if start_point is not None:
        before = query.checkpoint.start_point
        history = query.history
        # What earlier processes know of its batches.
        for seconds in start_point.longest_seconds if before is None else ():
            history = learn(history, seconds, report.at)
        start_point = without_own_plan(start_point, before)
        checkpoint = replace(query.checkpoint, start_point=start_point)
        query = replace(query, history=history, checkpoint=checkpoint)
        query = _with_begin(with_batch_of_failure(query))
    sink = report.sinks.get(run_id)
    if sink is not None and sink is not query.run.sink_log:
        skipped = _skipped(query.run, sink, report.at)
        query = replace(query, run=replace(query.run, sink_log=sink, skipped=skipped))
    log = report.logs.get(run_id)
    # A report with what sinks show repeats the readings of the one before it.
    if log is None or log is query.run.logged or not query.run.alive:
        return query
    return fold_log(query, log, report.at)


def _skipped(run: Run, sink: SinkLog, at: float) -> SkippedBatches | None:
    before = run.skipped
    if sink.skips_to is None or (before is not None and sink.skips_to <= before.until):
        return before
    first = sink.first
    done = run.last_commit_batch
    if before is not None:
        first = before.first
    elif first is None and done is not None and run.sink_log and run.sink_log.is_behind:
        # Another query has begun to write there.
        first = done + 1
    return SkippedBatches(at, sink.skips_to, first)


def fold_log(query: Query, log: LoggedBatches, at: float) -> Query:
    """Apply one reading of the commit log to the query's run."""
    before = query.run.logged
    read_at = query.run.logged_at
    query = replace(query, run=replace(query.run, logged=log, logged_at=at))
    if log.committed is not None:
        query = begun(query, log.committed + 1)
        query = _committed_by_log(query, log.committed, at, is_first=before is None)
    facts = query.run.facts
    if facts is None or not facts.async_progress:
        return query
    done = query.checkpoint.last_commit_batch
    behind = None
    has_grown = before is None or log.committed != before.committed
    if query.batches_not_durable and done is not None and not has_grown:
        since = at if read_at is None else read_at
        behind = query.run.log_behind or LogBehind(since, 0, UNKNOWN_BATCH)
        if behind.batch_id != done:
            behind = LogBehind(behind.since, behind.polls + 1, done)
    return replace(query, run=replace(query.run, log_behind=behind))


NAP_SECONDS = 10.0
"""Idle time between two batches of a steady input is shorter."""
NO_PLAN = PlanDatasets()


def _idle(query: Query, at: float) -> Query:
    last_idle_at = max(at, query.run.last_idle_at or at)
    run = replace(query.run, last_idle_at=last_idle_at)
    return replace(query, run=run, history=_recovered(query))


def _recovered(query: Query) -> History:
    """Its history with earlier failures as recovered, unless the activity arrives after its end."""
    return query.history if query.run.ended is not None else recovered(query.history)


def _committed_by_event(query: Query, batch_id: int, at: float) -> Query:
    run = query.run
    if run.last_commit_batch is not None and batch_id < run.last_commit_batch:
        return query
    if run.last_commit_at is not None and batch_id == run.last_commit_batch:
        return _commit(query, batch_id, run.last_commit_at)
    flying = run.in_flight.batch_id if run.in_flight is not None else None
    # The commit of a late event precedes the batch now in flight.
    is_late = flying is not None and flying > batch_id
    return _commit(query, batch_id, _no_later_than_flight(run, at) if is_late else at)


def _committed_by_probe(
    query: Query, previous: ProbedRun | None, batch_id: int, at: float
) -> Query:
    if previous is None or not previous.has_batch_id:
        return _commit_seen(query, batch_id, at, is_first=True, was_reported=True)
    # A run keeps the id of its committed batch until the next trigger. If no poll has seen the
    # batch run, it may have been committed, and reported, before the listener was added.
    done = query.run.last_commit_batch
    ran = previous.processing and previous.batch_id == batch_id
    alone = query.run.last_commit_at is None and (done is None or batch_id <= done + 1)
    return _commit_seen(query, batch_id, at, is_first=False, was_reported=alone and not ran)


def _committed_by_log(query: Query, batch_id: int, at: float, *, is_first: bool) -> Query:
    facts = query.run.facts
    has_events = facts is not None and not facts.trigger.is_continuous
    # It may have been committed, and reported, before the listener was added.
    was_reported = not has_events or (is_first and query.run.last_commit_at is None)
    return _commit_seen(query, batch_id, at, is_first=is_first, was_reported=was_reported)


def _commit_seen(
    query: Query, batch_id: int, at: float, *, is_first: bool, was_reported: bool
) -> Query:
    """Count a commit without an event: batch ids only grow when Spark commits.

    The first poll proves the commit but not its time.
    """
    run = query.run
    if run.last_commit_batch is not None and batch_id <= run.last_commit_batch:
        return query
    query = _commit(query, batch_id, run.last_commit_at if is_first else at)
    if was_reported or query.run.unreported is not None:
        return query
    return replace(query, run=replace(query.run, unreported=UnreportedCommit(at, batch_id)))


def _commit(query: Query, batch_id: int, at: float | None) -> Query:
    """Count a commit; ``at`` is None if its time is not known, since it may be an old one."""
    history = query.history
    checkpoint = query.checkpoint
    run = query.run
    newest = checkpoint.newest_commit
    log_behind = run.log_behind
    if at is not None:
        last = checkpoint.last_commit_batch
        new_commits = 1 if last is None else max(0, batch_id - last)
        totals = replace(history.totals, commits=history.totals.commits + new_commits)
        history = replace(_recovered(query), totals=totals)
        newest = (batch_id, at)
        if _was_idle(run, at):
            log_behind = None
    return replace(
        query,
        history=history,
        checkpoint=replace(checkpoint, last_commit_batch=batch_id, newest_commit=newest),
        run=replace(
            run,
            last_commit_batch=batch_id,
            first_batch=batch_id if run.first_batch is None else run.first_batch,
            last_commit_at=at,
            log_behind=log_behind,
        ),
    )


def _was_idle(run: Run, at: float) -> bool:
    """Whether a commit ends a proven idle time, before which the log cannot be behind."""
    if run.last_idle_at is None or run.last_commit_at is None:
        return False
    return run.last_idle_at > run.last_commit_at and at - run.last_commit_at > NAP_SECONDS


def _with_datasets(query: Query) -> Query:
    """The query with the datasets of its newest progress and plan; itself if they are the same."""
    run = query.run
    idle = run.probed.idle_progress if run.probed is not None else None
    progress = run.progress or idle
    facts = run.facts
    described = progress.sink if progress is not None else ""
    sink = described or (facts.sink if facts is not None else "")
    plan = facts.plan if facts is not None else NO_PLAN
    before = query.checkpoint.datasets
    datasets = datasets_of(before, sink, progress, plan)
    if datasets is before:
        return query
    return replace(query, checkpoint=replace(query.checkpoint, datasets=datasets))
