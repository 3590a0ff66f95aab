"""One query, one observation -> that query afterwards. Pure; the heart of knowing.

Events and probe tell the same story with different delays, so everything here only
moves forward: a commit counts when its batch id is news, an end counts once, and an
observation of another run never touches this one.
"""

from __future__ import annotations

from bisect import bisect_left

from msgspec.structs import replace

from .events import Event, Idle, Progress, Started, Terminated
from .failure import Failure, describe_failure, died_of_stopped_context
from .probing import Context, ProbedRun
from .query import BASELINE_BATCHES, BUCKETS, Ended, InFlight, Outcome, Query, Totals

PAST_RUNS = 16
BASELINE_GROWTH = 3.0


def begin(query_id: str, run_id: str, name: str | None, at: float) -> Query:
    """Meet a query for the first time."""
    return Query(query_id=query_id, run_id=run_id, name=name, started_at=at)


def succeed(old: Query, query_id: str, run_id: str, at: float) -> Query:
    """Begin the next run: what was counted and learned stays, the signs of life start anew."""
    same_query = old.query_id == query_id
    return Query(
        query_id=query_id,
        run_id=run_id,
        name=old.name,
        started_at=at,
        past_runs=(*old.past_runs, old.run_id)[-PAST_RUNS:],
        last_commit_batch=old.last_commit_batch if same_query else None,
        unrecovered=old.failure,
        baseline=old.baseline,
        totals=replace(old.totals, restarts=old.totals.restarts + 1),
    )


def fold_event(query: Query, event: Event, at: float, *, context: Context) -> Query:
    """Take in an event of the query's present run, heard at ``at``."""
    query = replace(query, last_event_at=max(at, query.last_event_at or at))
    if isinstance(event, Terminated):
        return end(query, event.exception, event.error_class, at, witness="event", context=context)
    if isinstance(event, Started):
        return replace(query, name=event.name or query.name)
    if isinstance(event, Idle):
        return _idle(query, at)
    return _progress(query, event, at)


def fold_probe(query: Query, run: ProbedRun, at: float, *, context: Context) -> Query:
    """Take in one look of the probe at the query's present run."""
    in_flight = _in_flight(query, run, at) if run.active else query.in_flight
    previous = query.probed
    query = replace(
        query,
        name=run.facts.name or query.name,
        facts=run.facts,
        probed=run,
        probed_at=at,
        in_flight=in_flight,
        vanished_at=None,
    )
    if run.batch_id is not None and run.batch_id > 0:
        query = _committed_by_probe(query, run.batch_id - 1, at, first_look=previous is None)
    if not run.active:
        return end(query, run.exception, run.error_class, at, witness="probe", context=context)
    return _idle(query, at) if run.waiting_without_data or _moved_on(previous, run) else query


def end(
    query: Query,
    exception: str | None,
    error_class: str | None,
    at: float,
    *,
    witness: str,
    context: Context = Context.RUNNING,
) -> Query:
    """Record the end of the present run; the second witness of an end changes nothing."""
    if query.ended is not None:
        return query
    outcome, failure = _outcome(query, exception, error_class, context)
    return replace(
        query,
        ended=Ended(at, outcome, witness, failure),
        totals=_count_end(query.totals, outcome),
    )


def _outcome(
    query: Query, exception: str | None, error_class: str | None, context: Context
) -> tuple[Outcome, Failure | None]:
    if exception is None:
        finite = query.facts is not None and query.facts.trigger.ends_by_itself
        return (Outcome.COMPLETED if finite else Outcome.STOPPED), None
    if context is not Context.RUNNING and died_of_stopped_context(exception):
        return Outcome.STOPPED, None
    return Outcome.FAILED, describe_failure(exception, error_class)


def _count_end(totals: Totals, outcome: Outcome) -> Totals:
    if outcome is Outcome.FAILED:
        return replace(totals, failed=totals.failed + 1)
    if outcome is Outcome.STOPPED:
        return replace(totals, stopped=totals.stopped + 1)
    return replace(totals, completed=totals.completed + 1)


def _idle(query: Query, at: float) -> Query:
    return replace(query, last_idle_at=at, unrecovered=None)


def _progress(query: Query, progress: Progress, at: float) -> Query:
    query = replace(query, name=progress.name or query.name)
    if not progress.committed:
        return _idle(query, at)
    newest = query.last_commit_batch is None or progress.batch_id >= query.last_commit_batch
    first_of_run = query.last_commit_at is None
    if newest:
        fresh = first_of_run or progress.batch_id != query.last_commit_batch
        query = _commit(query, progress.batch_id, at if fresh else query.last_commit_at)
        query = replace(query, progress=progress)
    return replace(
        query,
        baseline=_learn(query.baseline, progress.batch_seconds),
        totals=_count_batch(query.totals, progress),
    )


def _committed_by_probe(query: Query, batch_id: int, at: float, *, first_look: bool) -> Query:
    """Batch ids only grow by committing, so a grown one proves a commit without any event."""
    if query.last_commit_batch is not None and batch_id <= query.last_commit_batch:
        return query
    # At the first look the commit is a fact, its time is not known.
    return _commit(query, batch_id, query.last_commit_at if first_look else at)


def _commit(query: Query, batch_id: int, at: float | None) -> Query:
    known = query.last_commit_batch
    news = 0 if at is None else 1 if known is None else max(0, batch_id - known)
    return replace(
        query,
        last_commit_batch=batch_id,
        last_commit_at=at,
        unrecovered=None if at is not None else query.unrecovered,
        totals=replace(query.totals, commits=query.totals.commits + news),
    )


def _moved_on(previous: ProbedRun | None, run: ProbedRun) -> bool:
    """Whether Spark recorded a progress, idle ones included, between two looks."""
    if previous is None or not previous.last_progress_mark:
        return False
    return run.last_progress_mark > previous.last_progress_mark


def _in_flight(query: Query, run: ProbedRun, at: float) -> InFlight | None:
    if not (run.planning or run.processing):
        return None
    batch_id = run.batch_id if run.processing else None
    before = query.in_flight
    if before is None or before.batch_id != batch_id:
        return InFlight(since=at, moved_at=at, batch_id=batch_id)
    last_work = query.probed.work if query.probed is not None else None
    moved = run.work is not None and last_work is not None and run.work.mark != last_work.mark
    return replace(before, moved_at=at) if moved else before


def _learn(baseline: tuple[float, ...], seconds: float | None) -> tuple[float, ...]:
    """Remember a batch's duration, but let one stalled batch raise the bar threefold at most."""
    if seconds is None:
        return baseline
    if baseline:
        seconds = min(seconds, BASELINE_GROWTH * max(baseline))
    return (*baseline, seconds)[-BASELINE_BATCHES:]


def _count_batch(totals: Totals, progress: Progress) -> Totals:
    buckets, seconds = totals.batch_buckets, totals.batch_seconds
    if progress.batch_seconds is not None:
        slot = bisect_left(BUCKETS, progress.batch_seconds)
        buckets = (*buckets[:slot], buckets[slot] + 1, *buckets[slot + 1 :])
        seconds += progress.batch_seconds
    return replace(
        totals,
        input_rows=totals.input_rows + progress.input_rows,
        output_rows=totals.output_rows + (progress.output_rows or 0),
        late_rows=totals.late_rows + progress.late_rows,
        batch_buckets=buckets,
        batch_seconds=seconds,
    )
