"""Applies one observation to one query and returns the new query. Pure.

Events and probe report the same facts with different delays, so state only moves forward: a
commit counts when its batch id is new, an end counts once, and an observation of another run
never changes this one.
"""

from __future__ import annotations

from msgspec.structs import replace

from .commit_log import LoggedBatches, LogReport
from .counting import count_batch, learn, remember
from .ending import end, recovered, with_batch_of_death
from .events import Event, Idle, Progress, Started, Terminated
from .in_flight import in_flight, jobs_per_batch
from .places import PlanPlaces, places_of
from .probing import Context, ProbedRun
from .query import LogBehind, Query, UnreportedCommit
from .sources.fold_sources import with_latest
from .starting_point import without_own_plan
from .trends import follow, reports_lag

NAP_SECONDS = 10.0
"""Idle time between two batches of a steady input is shorter."""
NO_PLAN = PlanPlaces()


def fold_event(query: Query, event: Event, at: float, *, context: Context) -> Query:
    """Apply an event of the query's current run, received at ``at``."""
    name = event.name if isinstance(event, (Started, Progress)) else None
    query = replace(
        query, name=name or query.name, last_event_at=max(at, query.last_event_at or at)
    )
    if isinstance(event, Progress):
        return _with_places(_progress(query, event, at))
    if isinstance(event, Started):
        return replace(query, start=event)
    if isinstance(event, Idle):
        return _idle(query, _no_later_than_flight(query, at))
    if isinstance(event, Terminated):
        return end(query, event.exception, event.error_class, at, signal="event", context=context)
    return query


def _no_later_than_flight(query: Query, at: float) -> float:
    """Limit ``at`` to the start of the batch in flight: an idle event is older than that batch."""
    return at if query.in_flight is None else min(at, query.in_flight.since)


def fold_probe(query: Query, run: ProbedRun, at: float, *, context: Context) -> Query:
    """Apply one probe poll of the query's current run."""
    has_batches = not run.facts.trigger.is_continuous
    shows_work = run.active and has_batches
    previous = query.probed
    query = replace(
        query,
        name=run.facts.name or query.name,
        facts=run.facts,
        probed=run,
        probed_at=at,
        in_flight=in_flight(query, run, at) if shows_work else query.in_flight,
        vanished_at=None,
    )
    query = _with_places(replace(query, jobs_per_batch=jobs_per_batch(query)))
    if run.batch_id is not None and run.batch_id > 0 and has_batches:
        query = _committed_by_probe(query, previous, run.batch_id - 1, at)
    query = with_batch_of_death(query)
    if not run.active:
        return end(query, run.exception, run.error_class, at, signal="probe", context=context)
    return _idle(query, at) if run.waiting_without_data or _moved_on(previous, run) else query


def fold_logs(query: Query, report: LogReport) -> Query:
    """Apply one round of checkpoint reading to the query's current run, which may be over."""
    start_point = report.starts.get(query.run_id)
    if start_point is not None:
        start_point = without_own_plan(start_point, query.start_point)
        query = with_batch_of_death(replace(query, start_point=start_point))
    log = report.logs.get(query.run_id)
    return query if log is None or not query.alive else fold_log(query, log, report.at)


def fold_log(query: Query, log: LoggedBatches, at: float) -> Query:
    """Apply one reading of the commit log to the query's current run."""
    before, read_at = query.logged, query.logged_at
    query = replace(query, logged=log, logged_at=at)
    if log.committed is not None:
        query = _committed_by_log(query, log.committed, at, first_reading=before is None)
    if query.facts is None or not query.facts.async_progress:
        return query
    grown = before is None or log.committed != before.committed
    # An empty log can be stuck too.
    written = -1 if log.committed is None else log.committed
    if grown or query.last_commit_batch is None or written >= query.last_commit_batch:
        return replace(query, log_behind=None)
    stuck_since = at if read_at is None else read_at
    return replace(query, log_behind=_log_behind(query, query.last_commit_batch, stuck_since))


def _log_behind(query: Query, batch_id: int, stuck_since: float) -> LogBehind:
    """Count the readings in which new batches had committed but the log had not advanced."""
    known = query.log_behind
    if known is None:
        return LogBehind(stuck_since, 1, batch_id)
    if batch_id == known.batch_id:
        return known
    return LogBehind(known.since, known.polls + 1, batch_id)


def _idle(query: Query, at: float) -> Query:
    return replace(_recovered(query), last_idle_at=max(at, query.last_idle_at or at))


def _recovered(query: Query) -> Query:
    """Mark earlier failures as recovered, unless this activity arrives after the run's end."""
    return query if query.ended is not None else recovered(query)


def _progress(query: Query, progress: Progress, at: float) -> Query:
    if not progress.committed:
        return _idle(query, at)
    newest = query.run_commit_batch is None or progress.batch_id >= query.run_commit_batch
    first_of_run = query.last_commit_at is None
    if newest:
        fresh = first_of_run or progress.batch_id != query.run_commit_batch
        commit_at = _committed_at(query, progress.batch_id, at)
        query = _commit(query, progress.batch_id, commit_at if fresh else query.last_commit_at)
    last, last_at, trends = query.progress, query.progress_at, query.trends
    if last is None or progress.batch_id >= last.batch_id:
        last, last_at, known = progress, at, with_latest(progress, query)
        trends = follow(trends, known, at, asked=reports_lag(query.polls))
        query = _reported(query, progress.batch_id)
    return replace(
        query,
        last_input_at=at if progress.input_rows else query.last_input_at,
        progress=last,
        progress_at=last_at,
        trends=trends,
        baseline=learn(query.baseline, progress.batch_seconds),
        recent_batches=remember(query.recent_batches, progress.batch_seconds),
        totals=count_batch(query.totals, progress),
    )


def _committed_at(query: Query, batch_id: int, at: float) -> float:
    """When the batch committed; a late event's commit precedes the batch now in flight."""
    flying = query.in_flight.batch_id if query.in_flight is not None else None
    return at if flying is None or flying <= batch_id else _no_later_than_flight(query, at)


def _committed_by_probe(
    query: Query, previous: ProbedRun | None, batch_id: int, at: float
) -> Query:
    first_poll = previous is None or not previous.has_batch_id
    before, query = query, _commit_seen(query, batch_id, at, first_poll=first_poll)
    if previous is None or first_poll or query is before or query.unreported is not None:
        return query
    # A run keeps the id of its committed batch until the next trigger. If no poll has seen the
    # batch run, it may have been committed, and reported, before the listener was added.
    known, ran = before.run_commit_batch, previous.processing and previous.batch_id == batch_id
    alone = before.last_commit_at is None and (known is None or batch_id <= known + 1)
    return query if alone and not ran else replace(query, unreported=UnreportedCommit(at, batch_id))


def _committed_by_log(query: Query, batch_id: int, at: float, *, first_reading: bool) -> Query:
    before, query = query, _commit_seen(query, batch_id, at, first_poll=first_reading)
    if query is before or query.unreported is not None or not _has_progress_events(query):
        return query
    # It may have been committed, and reported, before the listener was added.
    is_old = first_reading and before.last_commit_at is None
    return query if is_old else replace(query, unreported=UnreportedCommit(at, batch_id))


def _has_progress_events(query: Query) -> bool:
    return query.facts is not None and not query.facts.trigger.is_continuous


def _commit_seen(query: Query, batch_id: int, at: float, *, first_poll: bool) -> Query:
    """Count a commit without an event: batch ids only grow when Spark commits."""
    if query.run_commit_batch is not None and batch_id <= query.run_commit_batch:
        return query
    # The first poll proves the commit but not its time.
    return _commit(query, batch_id, query.last_commit_at if first_poll else at)


def _reported(query: Query, batch_id: int) -> Query:
    if query.unreported is None or batch_id < query.unreported.batch_id:
        return query
    return replace(query, unreported=None)


def _commit(query: Query, batch_id: int, at: float | None) -> Query:
    known = query.last_commit_batch
    if at is not None and _was_idle(query, at):
        query = replace(query, log_behind=None)
    new_commits = 0 if at is None else 1 if known is None else max(0, batch_id - known)
    return replace(
        _recovered(query) if at is not None else query,
        last_commit_batch=batch_id,
        run_commit_batch=batch_id,
        last_commit_at=at,
        newest_commit=query.newest_commit if at is None else (batch_id, at),
        totals=replace(query.totals, commits=query.totals.commits + new_commits),
    )


def _was_idle(query: Query, at: float) -> bool:
    """Whether a commit ends a proven idle time, before which the log cannot be behind."""
    idle_at, commit_at = query.last_idle_at, query.last_commit_at
    if idle_at is None or commit_at is None or idle_at <= commit_at:
        return False
    return at - commit_at > NAP_SECONDS


def _moved_on(previous: ProbedRun | None, run: ProbedRun) -> bool:
    """Whether Spark recorded a progress, idle ones included, between two polls."""
    if previous is None or not previous.last_progress_mark:
        return False
    return run.last_progress_mark > previous.last_progress_mark


def _with_places(query: Query) -> Query:
    """The query with the places of its newest progress and plan; itself if they are the same."""
    idle = query.probed.idle_progress if query.probed is not None else None
    progress, facts = query.progress or idle, query.facts
    described = progress.sink if progress is not None else ""
    sink = described or (facts.sink if facts is not None else "")
    plan = facts.plan if facts is not None else NO_PLAN
    places = places_of(query.places, sink, progress, plan)
    return query if places is query.places else replace(query, places=places)
