"""StreamingInputMissing: a query has read no rows for ``expected_input_seconds``.

Idle is healthy unless the settings say that data must come. It is the last rule: a query that has
failed, is stalled or lags has another alert, which explains why it reads nothing.
"""

from __future__ import annotations

from ...listener.input_rows import has_uncounted_rows
from ..case import Case
from ..evidence import evidence
from ..finding import Finding, Severity, State

NAME = "StreamingInputMissing"


def check(case: Case) -> Finding | None:
    """Fire when no batch has had rows for the limit, and for its window.

    A run that is started again goes on counting: the time in which the query was down is left out.
    """
    allowed, query = case.limits.expected_input_seconds, case.query
    if allowed is None or not case.is_running or _may_have_rows(case):
        return None
    if query.last_input_at is None:
        seconds = case.watched_since(query.started_at) + query.without_input_before
    else:
        seconds = case.watched_since(query.last_input_at)
    if seconds <= max(allowed, case.window.seconds):
        return None
    ever = "" if query.last_input_at is not None else ", since its run began"
    reason = f"no rows read for {seconds:.0f} s{ever} ({allowed:.0f} s allowed)"
    return Finding(
        alertname=NAME,
        query=case.label,
        severity=Severity.WARNING,
        state=State.IDLE,
        reason=reason,
        summary=f"{case.label} gets no data: {reason}",
        evidence=evidence(case),
    )


def _may_have_rows(case: Case) -> bool:
    """Whether rows may have been read that no event has told of yet, or ever will.

    A batch in flight may have some.
    """
    query = case.query
    if has_uncounted_rows(query):
        return True
    flight, done = query.in_flight, query.last_commit_batch
    if flight is None or flight.batch_id is None:
        return False
    return done is None or flight.batch_id > done
