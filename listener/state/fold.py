"""Applies one observation to one query and returns the new query.

Events and probe report the same facts with different delays, so state only moves forward: a
commit counts when its batch id is new, an end counts once, and an observation of another run
never changes this one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from msgspec.structs import replace

from ..commit_log import USUAL_HOURS, LoggedBatches, LogReport, SinkLog, without_own_plan
from ..events import Event, Idle, Progress, SourceProgress, Started, Terminated
from ..failure import SESSION_ENDED, Failure, describe_failure, died_of_stopped_context
from ..offsets import BASE_INDEX, WHOLE, Offsets, unread_from
from ..probe_report import Context, ProbedRun
from ..source_polls import SourcePoll
from .flow import Datasets, PlanDatasets, datasets_of
from .inputs import follow_inputs, had_input
from .positions import compare, continued, follow_batch, follow_poll, of_topics_read
from .query import (
    BUCKETS,
    RECENT_BATCHES,
    UNKNOWN_BATCH,
    Ended,
    LogBehind,
    Outcome,
    Query,
    RunFailure,
    SkippedBatches,
    Totals,
    UnreportedCommit,
    in_flight,
    jobs_per_batch,
)
from .sources import PolledSource, between_runs, follow_source
from .trends import Trends, follow, follow_polls

# -- counting ---------------------------------------------------------------------------------


def learn(query: Query, seconds: float | None, at: float) -> Query:
    """Add a batch's duration: the two longest of each hour are kept, for ``USUAL_HOURS``.

    However rare batches are, the last two hours with one are kept.
    """
    longest, hour = query.longest_batches, int(at // 3600)
    if seconds is None or sum(when == hour and was >= seconds for when, was in longest[-2:]) > 1:
        return query
    of_hour = sorted([*(batch for batch in longest if batch[0] == hour), (hour, seconds)])
    before = [batch for batch in longest if batch[0] != hour]
    recent = [batch for batch in before if batch[0] >= hour - USUAL_HOURS] or before[-1:]
    return with_longest(query, (*recent, *of_hour[-2:]))


def with_longest(query: Query, batches: tuple[tuple[int, float], ...]) -> Query:
    """The query with these longest batches, and with what is usual by them.

    What happened once is an accident; what happened twice is normal.
    """
    longest = sorted(seconds for _, seconds in batches)
    usual = longest[-2] if len(longest) > 1 else None
    return replace(query, longest_batches=batches, usual_seconds=usual)


TOGETHER_SECONDS = 1.0
"""Events that are late come together, and a poll of Spark Connect may bring two at once."""


def observed_seconds(query: Query, progress: Progress, at: float) -> float | None:
    """How long the batch took, by Spark's wall clock, which may be set meanwhile.

    So it counts at most as long as we observed: since the batch before it arrived, unless they
    came together, else since its run began.
    """
    if progress.batch_seconds is None:
        return None
    before = query.progress_at
    alone = before is not None and at - before >= TOGETHER_SECONDS
    since = before if before is not None and alone else query.started_at
    return max(0.0, min(progress.batch_seconds, at - since))


def count_batch(totals: Totals, progress: Progress) -> Totals:
    """Add a batch to the totals of its query."""
    buckets, seconds = totals.batch_buckets, progress.batch_seconds
    if seconds is not None:
        slot = bisect_left(BUCKETS, seconds)
        buckets = (*buckets[:slot], buckets[slot] + 1, *buckets[slot + 1 :])
    return replace(
        totals,
        input_rows=totals.input_rows + progress.input_rows,
        output_rows=totals.output_rows + (progress.output_rows or 0),
        late_rows=totals.late_rows + progress.late_rows,
        batch_buckets=buckets,
        batch_seconds=totals.batch_seconds + (seconds or 0.0),
    )


def add_totals(older: Totals, newer: Totals) -> Totals:
    """The totals of two records of one query."""
    fields = Totals.__struct_fields__
    sums = {field: getattr(older, field) + getattr(newer, field) for field in fields}
    buckets = map(sum, zip(older.batch_buckets, newer.batch_buckets, strict=True))
    return Totals(**sums | {"batch_buckets": tuple(buckets)})


# -- ending -----------------------------------------------------------------------------------


MAX_PAST_FAILURES = 16


def end(
    query: Query,
    exception: str | None,
    error_class: str | None,
    at: float,
    *,
    signal: str,
    context: Context = Context.RUNNING,
) -> Query:
    """Record the end of the current run; a second signal of the same end changes nothing."""
    if query.ended is not None:
        return query
    outcome, failure = _outcome(query, exception, error_class, context)
    query = replace(
        query,
        ended=Ended(at, outcome, signal, failure),
        totals=_count_end(query.totals, outcome),
    )
    if is_done_with(query):
        return recovered(query)
    return query if failure is None else _count_death(query, failure, at)


def with_batch_of_death(query: Query) -> Query:
    """Update the batch that the current run failed in, which may become known after its end."""
    if query.ended is None or not query.failures or query.failures[-1].at != query.ended.at:
        return query
    *before, last = query.failures
    batch_id = _batch_at_death(query)
    if batch_id <= last.batch_id:
        return query
    return replace(query, failures=(*before, replace(last, batch_id=batch_id)))


def expect_stop(query: Query) -> Query:
    """Record that the current run will be stopped on purpose, or just was."""
    query = replace(query, stop_expected=True)
    return recovered(query) if is_done_with(query) else query


def replaced_by(query: Query, label: str, at: float) -> Query:
    """Record that Spark stopped its run to start the query of ``label`` on its checkpoint."""
    return replace(end(query, None, None, at, signal="event"), taken_by=label)


def recovered(query: Query) -> Query:
    """Mark the failures of earlier runs as recovered."""
    if query.unrecovered is None and not query.unrecovered_failures:
        return query
    return replace(query, unrecovered=None, unrecovered_failures=0)


def end_past_run(
    query: Query, event: Terminated, at: float, *, signal: str, context: Context
) -> Query:
    """Record the late end of an earlier run: Spark posts starts at once and queues ends.

    A failure stays unrecovered until the current run shows activity, as if it came in time.
    """
    outcome, failure = _outcome(query, event.exception, event.error_class, context)
    query = replace(
        query,
        unended_runs=tuple(run for run in query.unended_runs if run != event.run_id),
        totals=_count_end(query.totals, outcome),
    )
    if failure is None:
        return query
    counted = _count_death(query, failure, at)
    if query.activity_seen or is_done_with(query):
        return replace(counted, unrecovered_failures=query.unrecovered_failures)
    return replace(counted, unrecovered=Ended(at, outcome, signal, failure))


def is_done_with(query: Query) -> bool:
    """Whether it completed or was stopped on purpose, so that no next run is expected."""
    if query.ended is None:
        return False
    outcome = query.ended.outcome
    return outcome is Outcome.COMPLETED or (outcome is Outcome.STOPPED and query.stop_expected)


def _count_death(query: Query, failure: Failure, at: float) -> Query:
    death = RunFailure(at, _batch_at_death(query), failure.error_class)
    return replace(
        query,
        failures=(*query.failures, death)[-MAX_PAST_FAILURES:],
        unrecovered_failures=query.unrecovered_failures + 1,
    )


def _batch_at_death(query: Query) -> int:
    """The last batch seen in flight, or the one after the last commit if that is later.

    ``UNKNOWN_BATCH`` until any signal shows where the run began.
    """
    committed, point, probed = query.last_commit_batch, query.start_point, query.probed
    if committed is None and point is not None and point.committed is not None:
        committed = point.committed.batch_id
    flying = query.in_flight.batch_id if query.in_flight is not None else None
    polled = probed is not None and probed.has_batch_id and not probed.facts.trigger.is_continuous
    if committed is None and flying is None and point is None and not polled:
        return UNKNOWN_BATCH
    return max(0 if committed is None else committed + 1, flying or 0)


def _outcome(
    query: Query, exception: str | None, error_class: str | None, context: Context
) -> tuple[Outcome, Failure | None]:
    if exception is None:
        finite = query.trigger is not None and query.trigger.ends_by_itself
        return (Outcome.COMPLETED if finite else Outcome.STOPPED), None
    if context is not Context.RUNNING and died_of_stopped_context(exception):
        return Outcome.STOPPED, None
    if error_class == SESSION_ENDED and query.stop_expected:
        return Outcome.STOPPED, None
    return Outcome.FAILED, describe_failure(exception, error_class)


def _count_end(totals: Totals, outcome: Outcome) -> Totals:
    return replace(totals, **{outcome.value: getattr(totals, outcome.value) + 1})


# -- fold sources -----------------------------------------------------------------------------


def fold_sources(query: Query, polls: Mapping[int, SourcePoll], trouble: str) -> Query:
    """Apply the newest polls of the sources of the query's current run."""
    if polls == query.polls:
        return query if trouble == query.source_trouble else replace(query, source_trouble=trouble)
    before = query.sources
    followed = {index: follow_source(before.get(index), poll) for index, poll in polls.items()}
    query = _with_read(query, polls)
    query = replace(
        query,
        sources={**between_runs(before), **followed},
        source_trouble=trouble,
        trends=follow_polls(query.trends, before, followed, loop_began=query.loop_began),
    )
    return _with_begin(query)


def _with_read(query: Query, polls: Mapping[int, SourcePoll]) -> Query:
    """The query with where it reads, by these polls."""
    reading, before = query.reading, query.polls
    for index, poll in sorted(polls.items()):
        last = before.get(index)
        if last is None or poll.at > last.at:
            reading = follow_poll(reading, index, poll, last, _ended_since(query, index, poll.at))
    ends = () if query.progress is None else query.progress.sources
    read = {name for source in ends for name in unread_from(source.end)}
    return replace(query, reading=of_topics_read(reading, polls, read))


def _ended_since(query: Query, index: int, at: float) -> dict[str, int]:
    """Where a batch of a source ended, if its event arrived after ``at``."""
    progress, arrived = query.progress, query.progress_at
    if progress is None or arrived is None or arrived <= at or index >= len(progress.sources):
        return {}
    return unread_from(progress.sources[index].end)


def _with_begin(query: Query) -> Query:
    """The query, compared with its checkpoint before once it is known where this one begins."""
    point, facts = query.start_point, query.facts
    if query.reading.earlier is None or point is None:
        return query
    reading = compare(
        query.reading,
        {index: poll.begins for index, poll in query.polls.items() if poll.begins} | point.begins,
        query.polls,
        session=query.session,
        is_temporary=facts is not None and facts.is_temporary,
    )
    return replace(query, reading=reading)


def _with_latest(progress: Progress, query: Query, loop_began: float | None) -> Progress:
    """A batch with the latest offsets of its sources, as of the last poll before it ended.

    A trigger that ends by itself reads only the data present at its start (``availableNow``), so
    later data is not unread.
    """
    if loop_began is not None:
        sources = tuple(replace(source, latest=None) for source in progress.sources)
    elif query.sources:
        sources = tuple(
            _polled(source, query.sources.get(index))
            for index, source in enumerate(progress.sources)
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
    last = query.last_commit_batch
    if not query.id_before or query.has_batch or last is None:
        return query
    if batch_id > last:
        return replace(query, goes_on=True, reading=continued(query.reading))
    return replace(
        query,
        id_before="",
        last_commit_batch=None,
        newest_commit=None,
        sources={},
        trends=Trends(),
        datasets=Datasets(),
        without_input_before=0.0,
        inputs=(),
    )


# -- fold -------------------------------------------------------------------------------------


NAP_SECONDS = 10.0
"""Idle time between two batches of a steady input is shorter."""
NO_PLAN = PlanDatasets()


def fold_event(query: Query, event: Event, at: float, *, context: Context) -> Query:
    """Apply an event of the query's current run, received at ``at``."""
    if isinstance(event, Progress):
        return _with_places(_progress(query, event, at))
    query = replace(query, last_event_at=max(at, query.last_event_at or at))
    if isinstance(event, Started):
        return replace(query, name=event.name or query.name, start=event)
    if isinstance(event, Idle):
        return _idle(query, _no_later_than_flight(query, at))
    query = replace(query, reading=replace(query.reading, is_over=True))
    return end(query, event.exception, event.error_class, at, signal="event", context=context)


def _no_later_than_flight(query: Query, at: float) -> float:
    """Limit ``at`` to the start of the batch in flight: an idle event is older than that batch."""
    return at if query.in_flight is None else min(at, query.in_flight.since)


def fold_probe(query: Query, run: ProbedRun, at: float, *, context: Context) -> Query:
    """Apply one probe poll of the query's current run."""
    has_batches = not run.facts.trigger.is_continuous
    if has_batches and run.batch_id is not None and run.has_batch_id:
        query = begun(query, run.batch_id)
    shows_work = run.active and has_batches
    previous = query.probed
    query = replace(
        query,
        name=run.facts.name or query.name,
        facts=run.facts,
        probed=run,
        probed_at=at,
        in_flight=in_flight(query, run, at) if shows_work else query.in_flight,
        stopping_since=(query.stopping_since or at) if run.stopping else None,
        vanished_at=None,
    )
    query = _with_places(replace(query, jobs_per_batch=jobs_per_batch(query)))
    if run.batch_id is not None and run.batch_id > 0 and has_batches:
        query = _committed_by_probe(query, previous, run.batch_id - 1, at)
    query = with_batch_of_death(query)
    if not run.active and context is Context.TERMINATED and run.exception is not None:
        # Shutdown hooks stop the listener bus and then delete temporary folders, which fails the
        # queries that use them. A failure before that has posted an event.
        return query
    if not run.active:
        return end(query, run.exception, run.error_class, at, signal="probe", context=context)
    return _idle(query, at) if run.waiting_without_data or _moved_on(previous, run) else query


def fold_logs(query: Query, report: LogReport) -> Query:
    """Apply one round of checkpoint reading to the query's current run, which may be over."""
    start_point = report.starts.get(query.run_id)
    if start_point is not None:
        before = query.start_point
        # What earlier processes know of its batches.
        for seconds in start_point.longest_seconds if before is None else ():
            query = learn(query, seconds, report.at)
        query = replace(query, start_point=without_own_plan(start_point, before))
        query = _with_begin(with_batch_of_death(query))
    sink = report.sinks.get(query.run_id)
    if sink is not None and sink is not query.sink_log:
        query = replace(query, sink_log=sink, skipped=_skipped(query, sink, report.at))
    log = report.logs.get(query.run_id)
    # A report with what sinks show repeats the readings of the one before it.
    if log is None or log is query.logged or not query.alive:
        return query
    return fold_log(query, log, report.at)


def _skipped(query: Query, sink: SinkLog, at: float) -> SkippedBatches | None:
    before = query.skipped
    if sink.skips_to is None or (before is not None and sink.skips_to <= before.until):
        return before
    first, done = sink.first, query.run_commit_batch
    if before is not None:
        first = before.first
    elif first is None and done is not None and query.sink_log and query.sink_log.is_behind:
        # Another query has begun to write there.
        first = done + 1
    return SkippedBatches(at, sink.skips_to, first)


def fold_log(query: Query, log: LoggedBatches, at: float) -> Query:
    """Apply one reading of the commit log to the query's current run."""
    before, read_at = query.logged, query.logged_at
    query = replace(query, logged=log, logged_at=at)
    if log.committed is not None:
        query = begun(query, log.committed + 1)
        query = _committed_by_log(query, log.committed, at, is_first=before is None)
    if query.facts is None or not query.facts.async_progress:
        return query
    grown = before is None or log.committed != before.committed
    if grown or not query.batches_not_durable or query.last_commit_batch is None:
        return replace(query, log_behind=None)
    behind = query.log_behind or LogBehind(at if read_at is None else read_at, 0, UNKNOWN_BATCH)
    if behind.batch_id != query.last_commit_batch:
        behind = LogBehind(behind.since, behind.polls + 1, query.last_commit_batch)
    return replace(query, log_behind=behind)


def _idle(query: Query, at: float) -> Query:
    return replace(_recovered(query), last_idle_at=max(at, query.last_idle_at or at))


def _recovered(query: Query) -> Query:
    """Mark earlier failures as recovered, unless this activity arrives after the run's end."""
    return query if query.ended is not None else recovered(query)


def _progress(query: Query, progress: Progress, at: float) -> Query:
    name, event_at = progress.name or query.name, max(at, query.last_event_at or at)
    if not progress.committed:
        return replace(_idle(query, at), name=name, last_event_at=event_at)
    query = begun(query, progress.batch_id)
    seconds = observed_seconds(query, progress, at)
    if seconds != progress.batch_seconds:
        progress = replace(progress, batch_seconds=seconds)
    batch_id, run_batch = progress.batch_id, query.run_commit_batch
    if run_batch is None or batch_id >= run_batch:
        is_new = query.last_commit_at is None or batch_id != run_batch
        query = _commit(
            query, batch_id, _committed_at(query, batch_id, at) if is_new else query.last_commit_at
        )
    newest, newest_at = query.progress, query.progress_at
    trends, unreported, reading = query.trends, query.unreported, query.reading
    if newest is None or batch_id >= newest.batch_id:
        newest, newest_at, trigger = progress, at, query.trigger
        loop_began = query.started_at if trigger is not None and trigger.ends_by_itself else None
        trends = follow(
            trends,
            _with_latest(progress, query, loop_began),
            at,
            query.sources,
            interval=trigger.interval_seconds if trigger is not None else 0.0,
            loop_began=loop_began,
        )
        reading = follow_batch(reading, progress, at, is_first=query.progress is None)
        if unreported is not None and batch_id >= unreported.batch_id:
            unreported = None
    inputs = follow_inputs(query.inputs, progress, at)
    recent = query.recent_batches if seconds is None else (*query.recent_batches, seconds)
    return replace(
        learn(query, seconds, at),
        name=name,
        last_event_at=event_at,
        last_input_at=at if had_input(inputs, progress, at) else query.last_input_at,
        inputs=inputs,
        progress=newest,
        progress_at=newest_at,
        unreported=unreported,
        trends=trends,
        reading=reading,
        recent_batches=recent[-RECENT_BATCHES:],
        totals=count_batch(query.totals, progress),
    )


def _committed_at(query: Query, batch_id: int, at: float) -> float:
    """When the batch committed; a late event's commit precedes the batch now in flight."""
    flying = query.in_flight.batch_id if query.in_flight is not None else None
    return at if flying is None or flying <= batch_id else _no_later_than_flight(query, at)


def _committed_by_probe(
    query: Query, previous: ProbedRun | None, batch_id: int, at: float
) -> Query:
    if previous is None or not previous.has_batch_id:
        return _commit_seen(query, batch_id, at, is_first=True, was_reported=True)
    # A run keeps the id of its committed batch until the next trigger. If no poll has seen the
    # batch run, it may have been committed, and reported, before the listener was added.
    done, ran = query.run_commit_batch, previous.processing and previous.batch_id == batch_id
    alone = query.last_commit_at is None and (done is None or batch_id <= done + 1)
    return _commit_seen(query, batch_id, at, is_first=False, was_reported=alone and not ran)


def _committed_by_log(query: Query, batch_id: int, at: float, *, is_first: bool) -> Query:
    has_events = query.facts is not None and not query.facts.trigger.is_continuous
    # It may have been committed, and reported, before the listener was added.
    is_old = is_first and query.last_commit_at is None
    return _commit_seen(
        query, batch_id, at, is_first=is_first, was_reported=is_old or not has_events
    )


def _commit_seen(
    query: Query, batch_id: int, at: float, *, is_first: bool, was_reported: bool
) -> Query:
    """Count a commit without an event: batch ids only grow when Spark commits.

    The first poll proves the commit but not its time.
    """
    if query.run_commit_batch is not None and batch_id <= query.run_commit_batch:
        return query
    query = _commit(query, batch_id, query.last_commit_at if is_first else at)
    if was_reported or query.unreported is not None:
        return query
    return replace(query, unreported=UnreportedCommit(at, batch_id))


def _commit(query: Query, batch_id: int, at: float | None) -> Query:
    last = query.last_commit_batch
    if at is not None and _was_idle(query, at):
        query = replace(query, log_behind=None)
    new_commits = 0 if at is None else 1 if last is None else max(0, batch_id - last)
    return replace(
        _recovered(query) if at is not None else query,
        last_commit_batch=batch_id,
        run_commit_batch=batch_id,
        first_batch=batch_id if query.first_batch is None else query.first_batch,
        last_commit_at=at,
        newest_commit=query.newest_commit if at is None else (batch_id, at),
        totals=replace(query.totals, commits=query.totals.commits + new_commits),
    )


def _was_idle(query: Query, at: float) -> bool:
    """Whether a commit ends a proven idle time, before which the log cannot be behind."""
    idle_at, commit_at = query.last_idle_at, query.last_commit_at
    if idle_at is None or commit_at is None:
        return False
    return idle_at > commit_at and at - commit_at > NAP_SECONDS


def _moved_on(previous: ProbedRun | None, run: ProbedRun) -> bool:
    """Whether Spark recorded a progress, idle ones included, between two polls."""
    mark = previous.last_progress_mark if previous is not None else ""
    return bool(mark) and run.last_progress_mark > mark


def _with_places(query: Query) -> Query:
    """The query with the places of its newest progress and plan; itself if they are the same."""
    idle = query.probed.idle_progress if query.probed is not None else None
    progress, facts = query.progress or idle, query.facts
    described = progress.sink if progress is not None else ""
    sink = described or (facts.sink if facts is not None else "")
    plan = facts.plan if facts is not None else NO_PLAN
    datasets = datasets_of(query.datasets, sink, progress, plan)
    return query if datasets is query.datasets else replace(query, datasets=datasets)
