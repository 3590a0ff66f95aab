"""A bounded record of past runs and forgotten queries. Pure.

A past run or query is recognised for as long as an observation of it can still arrive, so a late
observation never counts as a new run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from .input_rows import has_uncounted_rows
from .query import Ended, Outcome, Query

MAX_PAST_RUNS = 10_000
"""The queues between Spark and us hold 10,000 starts and ends each (``mailbox.py``,
``event_queue.py``), and a run has one of each: no queued event belongs to an older run."""

MAX_FORGOTTEN = 1000
"""As many as ended queries that are still shown (``MAX_GONE_QUERIES``)."""

T = TypeVar("T")


class PastQueries:
    """The labels of past runs and past query ids, and what is kept of forgotten queries."""

    def __init__(self) -> None:
        self._runs: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._forgotten: dict[str, Query] = {}

    def add_run(self, query_id: str, run_id: str, label: str) -> None:
        """Record that a run of this query ended or was replaced."""
        _put(self._runs, run_id, label, MAX_PAST_RUNS)
        self.add_id(query_id, label)

    def add_id(self, query_id: str, label: str) -> None:
        """Record that this query had this id: the end of a run has no name."""
        _put(self._ids, query_id, label, MAX_PAST_RUNS)

    def bring_back(self, run_id: str) -> None:
        """Record that a past run is active after all."""
        self._runs.pop(run_id, None)

    def label_of_run(self, run_id: str) -> str | None:
        """The label of the query that a past run belongs to; None if it is not a past run."""
        return self._runs.get(run_id)

    def label_of_id(self, query_id: str) -> str | None:
        """The label that a query id had before it was replaced or forgotten."""
        return self._ids.get(query_id)

    def rename(self, old: str, new: str) -> None:
        """Record that the query with the label ``old`` has the label ``new`` from now on."""
        self._runs = {run: new if label == old else label for run, label in self._runs.items()}
        self._ids = {one: new if label == old else label for one, label in self._ids.items()}

    def forget(self, query: Query) -> None:
        """Keep only what its next run needs: its identity, and counters that never decrease."""
        self.add_run(query.query_id, query.run_id, query.label)
        # There can be hundreds of unnamed queries, and few of them return.
        unnamed = [label for label, one in self._forgotten.items() if one.is_unnamed]
        if len(self._forgotten) >= MAX_FORGOTTEN:
            del self._forgotten[unnamed[0] if unnamed else next(iter(self._forgotten))]
        self._forgotten[query.label] = _remains(query)

    def remember(self, label: str | None) -> Query | None:
        """What is kept of a forgotten query."""
        return self._forgotten.get(label) if label is not None else None

    def take(self, label: str) -> None:
        """Remove a forgotten query that has returned."""
        self._forgotten.pop(label, None)

    @property
    def forgotten(self) -> Iterable[Query]:
        """What is kept of all forgotten queries, oldest first."""
        return self._forgotten.values()


def _remains(query: Query) -> Query:
    gone_at = query.gone_or_started_at
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
        last_input_at=gone_at if has_uncounted_rows(query) else query.last_input_at,
        without_input_before=query.without_input_before,
    )


def _put(known: dict[str, T], key: str, value: T, limit: int) -> None:
    known.pop(key, None)
    known[key] = value
    if len(known) > limit:
        del known[next(iter(known))]
