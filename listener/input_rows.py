"""For how long a query has read no rows. Pure."""

from __future__ import annotations

from .query import Query


def has_uncounted_rows(query: Query) -> bool:
    """Whether the run may have read rows that no event reports.

    A ``continuous`` query has no events that count rows, and a batch that only the probe has
    seen may have read some.
    """
    is_continuous = query.facts is not None and query.facts.trigger.is_continuous
    return query.unreported is not None or is_continuous


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
