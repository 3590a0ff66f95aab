"""The failures of one query over all its runs: too many, or the same batch again and again."""

from __future__ import annotations

from collections.abc import Sequence

from ..listener.query import UNKNOWN_BATCH, Died, Query
from .policy import Limits


def is_flapping(query: Query, limits: Limits, now: float) -> bool:
    """Whether the restart budget is used up.

    While a query is down, its failures do not expire: the problem still exists.
    """
    if not query.deaths:
        return False
    at = query.deaths[-1].at if query.failure is not None else now
    return _spent(query.deaths, limits, at) or poison_batch(query, limits) is not None


def poison_batch(query: Query, limits: Limits) -> Died | None:
    """A failure, if all failures of the budget had its batch and its error class.

    One whose batch is not known may have had the same.
    """
    last = query.deaths[-limits.restart_budget :]
    if query.unrecovered_deaths == 0 or repeated(last) < limits.restart_budget:
        return None
    known = [died for died in last if died.batch_id != UNKNOWN_BATCH]
    return known[-1] if known and not is_committed(query, known[-1]) else None


def repeated(deaths: Sequence[Died]) -> int:
    """How many of the last failures had one error class and, where it is known, one batch."""
    count, batch_id = 0, UNKNOWN_BATCH
    for died in reversed(deaths):
        another = UNKNOWN_BATCH not in {batch_id, died.batch_id} and batch_id != died.batch_id
        if another or died.error_class != deaths[-1].error_class:
            break
        batch_id = max(batch_id, died.batch_id)
        count += 1
    return count


def is_committed(query: Query, died: Died) -> bool:
    """Whether the checkpoint showed, when the last run began, that the batch was committed.

    A process that querypulse did not monitor may have committed it.
    """
    point = query.start_point
    done = point.committed if point is not None else None
    return done is not None and done.batch_id >= died.batch_id != UNKNOWN_BATCH


def was_flapping_already(query: Query, limits: Limits) -> bool:
    """Whether the budget was already used up when the query last became unhealthy."""
    fell = max(0, len(query.deaths) - max(1, query.unrecovered_deaths))
    until_then = query.deaths[: fell + 1]
    return bool(until_then) and _spent(until_then, limits, until_then[-1].at)


def recent(query: Query, limits: Limits, now: float) -> list[Died]:
    """The failures within the window."""
    return [died for died in query.deaths if now - died.at <= limits.restart_window_seconds]


def in_earlier_processes(deaths: Sequence[Died], began_at: float) -> int:
    """How many of these failures happened before this process began, at ``began_at``."""
    return sum(died.at < began_at for died in deaths)


def _spent(deaths: Sequence[Died], limits: Limits, at: float) -> bool:
    counted = [died for died in deaths if at - died.at <= limits.restart_window_seconds]
    return len(counted) >= limits.restart_budget
