"""How a query goes on from run to run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from .counting import add_totals
from .ending import PAST_DEATHS, is_done_with, lasting_commit
from .input_rows import without_input
from .places import Places
from .query import BASELINE_BATCHES, RECENT_BATCHES, Query
from .trends import Trends, carry_over

UNENDED_RUNS = 16


def begin(query_id: str, run_id: str, name: str | None, at: float, *, label: str) -> Query:
    """Create the record of a new query."""
    return Query(query_id=query_id, run_id=run_id, name=name, label=label, started_at=at)


def succeed(old: Query, query_id: str, run_id: str, at: float) -> Query:
    """Begin the next run: keep the totals and the baseline, reset the signs of activity."""
    same_query = old.query_id == query_id
    return Query(
        query_id=query_id,
        run_id=run_id,
        name=old.name,
        label=old.label,
        started_at=at,
        unended_runs=tuple(run for run in _unended(old) if run != run_id),
        last_commit_batch=lasting_commit(old) if same_query else None,
        newest_commit=old.newest_commit if same_query else None,
        unrecovered=old.failure,
        deaths=old.deaths,
        unrecovered_deaths=old.unrecovered_deaths,
        retention=old.retention if same_query else {},
        trends=carry_over(old.trends) if same_query else Trends(),
        baseline=old.baseline,
        recent_batches=old.recent_batches,
        totals=replace(old.totals, restarts=old.totals.restarts + 1),
        commits_before_run=old.totals.commits,
        jobs_per_batch=old.jobs_per_batch,
        places=old.places if same_query else Places(),
        start_point=old.start_point if same_query else None,
        without_input_before=without_input(old, at) if same_query else 0.0,
    )


def _unended(old: Query) -> tuple[str, ...]:
    if old.ended is not None:
        return old.unended_runs
    return (*old.unended_runs, old.run_id)[-UNENDED_RUNS:]


def began_after(query: Query, others: Iterable[Query]) -> Query | None:
    """The query of the same name and session whose run began after ``query`` had ended."""
    ended_at = query.gone_at
    if ended_at is None:
        return None
    same = _of_name_and_session(query, others)
    return next((one for one in same if one.started_at >= ended_at), None)


def ended_before(query: Query, others: Iterable[Query]) -> Query | None:
    """The query of the same name and session that had ended before ``query`` was first seen.

    That includes one that has only vanished from polls: a session has one active query of a name.
    """
    seen_at = min([query.started_at, *(died.at for died in query.deaths)])
    same = _of_name_and_session(query, others)
    return next((one for one in same if one.gone_at is not None and one.gone_at <= seen_at), None)


def _of_name_and_session(query: Query, others: Iterable[Query]) -> Iterator[Query]:
    """The others with its name in its session; none if the session is unknown."""
    place = (query.name, query.session)
    return (one for one in others if query.session and (one.name, one.session) == place)


def join(older: Query, newer: Query) -> Query:
    """One query of two: ``newer``, whose run began after that of ``older`` had ended, and its past.

    One of them was not known by its name, so ``newer`` did not succeed ``older``.
    """
    committed_at = newer.newest_commit[1] if newer.newest_commit is not None else 0.0
    recovered = (
        newer.activity_seen or is_done_with(newer) or committed_at > older.gone_or_started_at
    )
    failures = [one for one in (older.failure, newer.unrecovered) if one is not None]
    deaths = sorted((*older.deaths, *newer.deaths), key=lambda died: died.at)
    return replace(
        newer,
        unended_runs=(*_unended(older), *newer.unended_runs)[-UNENDED_RUNS:],
        unrecovered=newer.unrecovered
        if recovered
        else max(failures, key=lambda one: one.at, default=None),
        deaths=tuple(deaths[-PAST_DEATHS:]),
        unrecovered_deaths=newer.unrecovered_deaths
        + (0 if recovered else older.unrecovered_deaths),
        totals=add_totals(older.totals, newer.totals, restarts=1),
        commits_before_run=older.totals.commits + newer.commits_before_run,
        baseline=(*older.baseline, *newer.baseline)[-BASELINE_BATCHES:],
        recent_batches=(*older.recent_batches, *newer.recent_batches)[-RECENT_BATCHES:],
        jobs_per_batch=newer.jobs_per_batch or older.jobs_per_batch,
    )
