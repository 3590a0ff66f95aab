"""How a run ends: completed, stopped or failed, and why. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from .events import Terminated
from .failure import Failure, describe_failure, died_of_stopped_context
from .probing import Context
from .query import UNKNOWN_BATCH, Died, Ended, Outcome, Query, Totals

PAST_DEATHS = 16


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
    if query.ended is None or not query.deaths or query.deaths[-1].at != query.ended.at:
        return query
    *before, last = query.deaths
    batch_id = _batch_at_death(query)
    if batch_id <= last.batch_id:
        return query
    return replace(query, deaths=(*before, replace(last, batch_id=batch_id)))


def lasting_commit(query: Query) -> int | None:
    """The last commit, if the next run goes on after it.

    None under async progress tracking: commits that are not in the log yet run again.
    """
    is_async = query.facts is not None and query.facts.async_progress
    return None if is_async else query.last_commit_batch


def expect_stop(query: Query) -> Query:
    """Record that the current run will be stopped on purpose, or just was."""
    query = replace(query, stop_expected=True)
    return recovered(query) if is_done_with(query) else query


def recovered(query: Query) -> Query:
    """Mark the failures of earlier runs as recovered."""
    if query.unrecovered is None and not query.unrecovered_deaths:
        return query
    return replace(query, unrecovered=None, unrecovered_deaths=0)


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
    if query.activity_seen or is_done_with(query):
        counted = _count_death(query, failure, at)
        return replace(counted, unrecovered_deaths=query.unrecovered_deaths)
    return replace(
        _count_death(query, failure, at), unrecovered=Ended(at, outcome, signal, failure)
    )


def is_done_with(query: Query) -> bool:
    """Whether it completed or was stopped on purpose, so that no next run is expected."""
    if query.ended is None:
        return False
    outcome = query.ended.outcome
    return outcome is Outcome.COMPLETED or (outcome is Outcome.STOPPED and query.stop_expected)


def _count_death(query: Query, failure: Failure, at: float) -> Query:
    death = Died(at, _batch_at_death(query), failure.error_class)
    return replace(
        query,
        deaths=(*query.deaths, death)[-PAST_DEATHS:],
        unrecovered_deaths=query.unrecovered_deaths + 1,
    )


def _batch_at_death(query: Query) -> int:
    """The last batch seen in flight, or the one after the last commit if that is later.

    ``UNKNOWN_BATCH`` until any signal shows where the run began.
    """
    committed = query.last_commit_batch
    if committed is None and query.start_point is not None and query.start_point.committed:
        committed = query.start_point.committed.batch_id
    after_commit = 0 if committed is None else committed + 1
    flying = query.in_flight.batch_id if query.in_flight is not None else None
    probed = query.probed
    polled = probed is not None and probed.has_batch_id and not probed.facts.trigger.is_continuous
    if committed is None and flying is None and query.start_point is None and not polled:
        return UNKNOWN_BATCH
    return max(after_commit, flying or 0)


def _outcome(
    query: Query, exception: str | None, error_class: str | None, context: Context
) -> tuple[Outcome, Failure | None]:
    if exception is None:
        finite = query.trigger is not None and query.trigger.ends_by_itself
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
