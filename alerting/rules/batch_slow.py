"""BatchSlow: a batch takes longer than the window, but its tasks still finish.

A run's first batch may be as long as it likes: it catches up with what came while the query
was away, and nothing is known of its pace.
"""

from __future__ import annotations

from ...listener.query import Query
from ..case import Case
from ..evidence import evidence
from ..finding import Finding, Severity, State

NAME = "BatchSlow"


def check(case: Case) -> Finding | None:
    """Fire while the batch in flight gets on, but slowly; ``CommitStalled`` when it does not."""
    flight = case.query.in_flight
    if not case.is_running or flight is None or flight.batch_id is None:
        return None
    if case.query.last_commit_at is None or case.probe_is_stale:
        return None
    if case.query.last_commit_batch is not None and flight.batch_id <= case.query.last_commit_batch:
        # It is done: the event was faster than the next look.
        return None
    lasted, still = case.watched_since(flight.since), case.watched_since(flight.moved_at)
    if lasted <= case.window.seconds or still > case.window.seconds:
        return None
    reason = f"batch {flight.batch_id} in flight for {lasted:.0f} s, {_what_moves(case.query)}"
    return Finding(
        alertname=NAME,
        query=case.label,
        severity=Severity.WARNING,
        state=State.SLOW,
        reason=reason,
        summary=f"Streaming query {case.label} is slow: {reason}",
        evidence=evidence(case),
    )


def _what_moves(query: Query) -> str:
    work = query.probed.work if query.probed is not None else None
    if work is None or work.own.jobs_active or not work.unowned.jobs_started:
        return "its tasks still finish"
    return "its tasks still finish, or those of jobs that name no query"
