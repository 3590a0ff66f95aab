"""For how long a query has read no rows. Pure."""

from __future__ import annotations

from .query import Query


def has_uncounted_rows(query: Query) -> bool:
    """Whether the run may have read rows that no event has reported, or will ever report.

    A ``continuous`` query has no events that count rows. A batch that only the probe has seen may
    have read some, also one in flight.
    """
    is_continuous = query.facts is not None and query.facts.trigger.is_continuous
    if query.unreported is not None or is_continuous:
        return True
    flight, done = query.in_flight, query.last_commit_batch
    if flight is None or flight.batch_id is None:
        return False
    return done is None or flight.batch_id > done


def without_input(old: Query, at: float) -> float:
    """Seconds without input rows up to ``at``, of a run that has ended and of the runs before it.

    0 when it is not known.
    """
    if has_uncounted_rows(old):
        return 0.0
    until = at if old.ended is None else old.ended.at
    if old.last_input_at is not None:
        return max(0.0, until - old.last_input_at)
    return max(0.0, until - old.started_at) + old.without_input_before
