"""One query for all readers: its observed state and its evaluated health."""

from __future__ import annotations

import msgspec

from ..listener.events import Progress
from ..listener.identity import base_label
from ..listener.probe import RunFacts
from ..listener.query import InFlight, Query, Totals
from ..listener.snapshot import SupervisedQuery
from ..listener.source_polls import SourcePoll
from .published_state import PublishedState, QueryHealthView

# -- row --------------------------------------------------------------------------------------


STALE_POLL_SECONDS = 120.0
"""After this long without a newer poll, a broker's figures are stale."""

OVER = frozenset({"stopped", "completed"})
"""States of a query that ended as intended."""


class _NotEvaluated(msgspec.Struct, frozen=True):
    """Used until the first evaluation."""

    state: str = "starting"
    reason: str = "not evaluated yet"
    ignored: bool = False
    window_seconds: float | None = None
    lag_allowed_offsets: float | None = None
    restart_budget: int | None = None
    expected_input_seconds: float | None = None


class QueryRow(msgspec.Struct, frozen=True):
    """One query by its label; ``query`` is None until it is seen."""

    published: PublishedState
    label: str
    query: Query | None
    health: QueryHealthView

    @property
    def state(self) -> str:
        """The state as plain text; an enum member would print as ``State.FAILED``."""
        plain: str = msgspec.to_builtins(self.health.state)
        return plain

    @property
    def supervised(self) -> SupervisedQuery | None:
        """What is known of its restarts; None unless the application lets querypulse restart it."""
        return self.published.snapshot.supervised.get(self.label)

    @property
    def is_expected(self) -> bool:
        """Whether the settings list it as an expected query."""
        if self.query is not None:
            return self.query.name in self.published.expected
        return any(self.label == base_label(name) for name in self.published.expected)

    @property
    def totals(self) -> Totals:
        """Its counters; an expected query has them before it is seen, so none starts at 1."""
        return self.query.totals if self.query is not None else Totals()

    @property
    def last_commit_age_seconds(self) -> float | None:
        """Seconds since the last commit seen in this run."""
        if self.query is None or self.query.last_commit_at is None:
            return None
        return self.published.snapshot.at - self.query.last_commit_at

    @property
    def last_idle_age_seconds(self) -> float | None:
        """Seconds since this run was last seen idle."""
        if self.query is None or self.query.last_idle_at is None:
            return None
        return self.published.snapshot.at - self.query.last_idle_at

    @property
    def last_input_age_seconds(self) -> float | None:
        """Seconds since this run last read rows."""
        if self.query is None or self.query.last_input_at is None:
            return None
        return self.published.snapshot.at - self.query.last_input_at

    @property
    def in_flight(self) -> InFlight | None:
        """The batch in flight; None without one."""
        query = self.query
        if query is None or not query.alive:
            return None
        flight = query.in_flight
        return flight if flight is not None and flight.batch_id is not None else None

    @property
    def batch_in_flight(self) -> int | None:
        """The id of the batch in flight."""
        return self.in_flight.batch_id if self.in_flight is not None else None

    @property
    def batch_in_flight_seconds(self) -> float | None:
        """Seconds since the batch in flight was first seen; None without one."""
        flight = self.in_flight
        return self.published.snapshot.at - flight.since if flight is not None else None

    @property
    def facts(self) -> RunFacts | None:
        """The facts that never change during the current run."""
        return self.query.facts if self.query is not None else None

    @property
    def progress(self) -> Progress | None:
        """Spark's progress of the current run's last batch."""
        return self.query.progress if self.query is not None else None

    @property
    def live_progress(self) -> Progress | None:
        """The same while it is current: the run is active and the stall window has not passed."""
        at = self.query.progress_at if self.query is not None else None
        return self.progress if self._is_live(at) else None

    def _is_live(self, at: float | None) -> bool:
        """Whether a figure from the time ``at`` is still current."""
        if self.query is None or not self.query.alive or at is None:
            return False
        window = self.health.window_seconds
        return self.published.snapshot.at - at <= (STALE_POLL_SECONDS if window is None else window)

    @property
    def no_progress_seconds(self) -> float | None:
        """Seconds without progress of what the query is doing; None while it waits.

        It is doing a batch, whose tasks finish, or a call to a source.
        """
        query = self.query
        if query is None or not query.alive or query.in_flight is None:
            return None
        return self.published.snapshot.watched(query.in_flight.moved_at, self.published.snapshot.at)

    @property
    def is_needed(self) -> bool:
        """Whether it should keep running, and so should its driver: it neither ended nor will.

        A failed query should keep running too. A query with an unknown trigger counts as one that
        does not end by itself.
        """
        if self.health.ignored or self.state in OVER:
            return False
        query = self.query
        if query is None:
            return True
        finite = self.facts is not None and self.facts.trigger.ends_by_itself
        return not finite and not query.stop_expected

    @property
    def reported_lag_by_source(self) -> dict[str, float]:
        """The lags that Spark reported after the last batch, by source index, while current.

        By index because two sources may share a description, which may hold a path or a topic
        list of any length.
        """
        query = self.query
        reported_at = (query.progress_at, query.last_idle_at) if query is not None else ()
        if self.progress is None or not any(map(self._is_live, reported_at)):
            return {}
        return {
            str(index): source.lag_offsets
            for index, source in enumerate(self.progress.sources)
            if source.lag_offsets is not None
        }

    @property
    def polls(self) -> dict[int, SourcePoll]:
        """The brokers' last polls for the current run, by source index."""
        return self.query.polls if self.query is not None else {}

    @property
    def fresh_polls(self) -> dict[int, SourcePoll]:
        """The polls that are current: their source answers, or answered a short while ago."""
        if self.query is None or not self.query.source_trouble:
            return self.polls
        oldest = self.published.snapshot.at - STALE_POLL_SECONDS
        return {index: poll for index, poll in self.polls.items() if poll.at >= oldest}

    @property
    def lag_by_source(self) -> dict[str, float]:
        """Known lags: from the broker if it can be polled, else as Spark reports them."""
        lags = self.reported_lag_by_source
        for index in self.polls:
            lags.pop(str(index), None)
        for index, poll in self.fresh_polls.items():
            if poll.lag_offsets is not None:
                lags[str(index)] = float(poll.lag_offsets)
        return lags

    @property
    def lag_seconds_by_source(self) -> dict[str, float]:
        """The age of the first unread record of each source, if known."""
        ages = {}
        for index, poll in self.fresh_polls.items():
            known = self.lag_seconds_by_topic(poll)
            if known:
                ages[str(index)] = max(known.values())
        return ages

    def lag_seconds_by_topic(self, poll: SourcePoll) -> dict[str, float]:
        """The same by topic: 0 if nothing is unread.

        Data unread at the poll counts as still unread unless a commit was seen since.
        """
        query = self.query
        moved = query is not None and query.alive and (query.last_commit_at or poll.at) > poll.at
        now = poll.wall if moved else self.published.wall
        ages = {topic: 0.0 for topic, lag in poll.lag_by_topic.items() if not lag}
        for topic, since in poll.waiting_since_by_topic.items():
            ages[topic] = max(0.0, now - since)
        return ages

    @property
    def lag_offsets(self) -> float | None:
        """The sum of the known lags."""
        lags = self.lag_by_source
        return sum(lags.values()) if lags else None

    @property
    def lag_seconds(self) -> float | None:
        """The age of the oldest unread record known."""
        return max(self.lag_seconds_by_source.values(), default=None)

    @property
    def error_class(self) -> str | None:
        """The error class of the unrecovered failure."""
        ended = self.query.failure if self.query is not None else None
        return ended.failure.error_class if ended is not None and ended.failure else None


def rows(published: PublishedState) -> tuple[QueryRow, ...]:
    """All queries: first the known ones, then those only evaluated or expected."""
    known = published.snapshot.labels()
    names = {query.name for query in published.snapshot.queries}
    absent = [base_label(name) for name in published.expected if name not in names]
    labels = dict.fromkeys([*known, *published.health, *absent])
    return tuple(
        QueryRow(published, label, known.get(label), published.health.get(label) or _NotEvaluated())
        for label in labels
    )


# -- neighbours -------------------------------------------------------------------------------
# One query in the graph of queries, for all readers.


MAX_NEIGHBOURS = 50


def upstream(row: QueryRow) -> tuple[str, ...]:
    """The queries that write what it reads, at most ``MAX_NEIGHBOURS``."""
    return row.published.flow.upstream.get(row.label, ())[:MAX_NEIGHBOURS]


def downstream(row: QueryRow) -> tuple[str, ...]:
    """The queries that read what it writes, at most ``MAX_NEIGHBOURS``."""
    return row.published.flow.downstream.get(row.label, ())[:MAX_NEIGHBOURS]


def end_to_end_age_seconds(row: QueryRow) -> float | None:
    """The age of the newest data that has passed from the first sources into its table."""
    passed = row.published.passed.get(row.label)
    return None if passed is None else max(0.0, row.published.snapshot.at - passed)
