"""What is remembered of runs and queries that are over, within bounds. Pure.

A run or query that was met once is recognised for as long as an observation of it can still
arrive, so that a late one is never taken for a new run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from .query import Ended, Outcome, Query

MAX_PAST_RUNS = 10_000
"""The queues on the way from Spark to us hold 10,000 starts and ends each (``mailbox.py``,
``event_queue.py``), and a run has two of them: no event that waits there is of an older run."""

MAX_FORGOTTEN = 1000
"""As many as queries that are gone and still shown (``MAX_GONE_QUERIES``)."""

T = TypeVar("T")


class PastQueries:
    """The labels of past runs and past query ids, and what stays of forgotten queries."""

    def __init__(self) -> None:
        self._runs: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._forgotten: dict[str, Query] = {}

    def add_run(self, query_id: str, run_id: str, label: str) -> None:
        """Remember that a run of this query is over, or was replaced."""
        _put(self._runs, run_id, label, MAX_PAST_RUNS)
        _put(self._ids, query_id, label, MAX_PAST_RUNS)

    def bring_back(self, run_id: str) -> None:
        """A past run was seen alive."""
        self._runs.pop(run_id, None)

    def label_of_run(self, run_id: str) -> str | None:
        """The label of the query that a past run belongs to; None if it is no past run."""
        return self._runs.get(run_id)

    def label_of_id(self, query_id: str) -> str | None:
        """The label that a query id had before it was replaced or forgotten."""
        return self._ids.get(query_id)

    def forget(self, query: Query) -> None:
        """Keep only what its next run needs: who it was, and counters that never go back."""
        self.add_run(query.query_id, query.run_id, query.label)
        # Unnamed queries come and go by the hundred, and few come back.
        unnamed = [label for label, one in self._forgotten.items() if one.is_unnamed]
        if len(self._forgotten) >= MAX_FORGOTTEN:
            del self._forgotten[unnamed[0] if unnamed else next(iter(self._forgotten))]
        self._forgotten[query.label] = _remains(query)

    def remember(self, label: str | None) -> Query | None:
        """What stays of a forgotten query."""
        return self._forgotten.get(label) if label is not None else None

    def take(self, label: str) -> None:
        """The forgotten query is back."""
        self._forgotten.pop(label, None)

    @property
    def forgotten(self) -> Iterable[Query]:
        """What stays of all forgotten queries, the oldest first."""
        return self._forgotten.values()


def _remains(query: Query) -> Query:
    gone_at = query.gone_at if query.gone_at is not None else query.started_at
    return Query(
        query_id=query.query_id,
        run_id=query.run_id,
        name=query.name,
        label=query.label,
        started_at=query.started_at,
        start=query.start,
        ended=Ended(gone_at, Outcome.COMPLETED, "forgotten"),
        last_commit_batch=query.last_commit_batch,
        totals=query.totals,
    )


def _put(known: dict[str, T], key: str, value: T, limit: int) -> None:
    known.pop(key, None)
    known[key] = value
    if len(known) > limit:
        del known[next(iter(known))]
