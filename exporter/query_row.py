"""One query for all readers: its observed state and its evaluated health."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from operator import attrgetter

from ..alerting.finding import QueryHealth
from ..core.states import QueryState
from ..listener.events import Progress, SourceProgress
from ..listener.source_polls import SourcePoll, topic_of
from ..listener.state.identity import base_label
from ..listener.state.query import Ended, InFlight, Outcome, Query
from .published_state import PublishedState

STALE_POLL_SECONDS = 120.0
"""After this long without a newer poll, a broker's figures are stale."""
OVER = frozenset({"stopped", "completed"})
"""States of a query that ended as intended."""
MAX_NEIGHBOURS = 50
_NOT_EVALUATED = QueryHealth(QueryState.STARTING, "not evaluated yet")
_NO_RUN = Ended(0.0, Outcome.STOPPED, "")


class QueryRow:
    """One query by its label, in one published state.

    An expected query that was not seen yet has a ``query`` without a run: its counters exist, so
    that none starts at 1.
    """

    def __init__(self, published: PublishedState, label: str, query: Query | None) -> None:
        self.published = published
        self.label = label
        self.is_seen = query is not None
        self.query = query or Query(
            query_id="", run_id="", name=None, label=label, started_at=0.0, ended=_NO_RUN
        )
        self.health = published.health.get(label, _NOT_EVALUATED)
        self.state = QueryState(self.health.state).value
        self.totals = self.query.totals
        self.facts = self.query.facts
        self.progress = self.query.progress
        self.supervised = published.snapshot.supervised.get(label)

    def age(self, at: float | None) -> float | None:
        """Seconds since a monotonic time; None stays None."""
        return None if at is None else self.published.snapshot.at - at

    @property
    def is_expected(self) -> bool:
        """Whether the settings list it as an expected query."""
        expected = self.published.expected
        if self.is_seen:
            return self.query.name in expected
        return any(self.label == base_label(name) for name in expected)

    @property
    def is_needed(self) -> bool:
        """Whether it should keep running, and so should its driver: it neither ended nor will.

        A failed query should keep running too. A query with an unknown trigger counts as one that
        does not end by itself.
        """
        if self.health.ignored or self.state in OVER or self.query.stop_expected:
            return False
        return self.facts is None or not self.facts.trigger.ends_by_itself

    @property
    def in_flight(self) -> InFlight | None:
        """The batch in flight; None without one."""
        flight = self.query.in_flight if self.query.alive else None
        return flight if flight is not None and flight.batch_id is not None else None

    @property
    def batch_in_flight_seconds(self) -> float | None:
        """Seconds since the batch in flight was first seen; None without one."""
        return self.age(self.in_flight.since) if self.in_flight is not None else None

    @property
    def no_progress_seconds(self) -> float | None:
        """Seconds without progress of what the query is doing; None while it waits.

        It is doing a batch, whose tasks finish, or a call to a source.
        """
        snapshot, flight = self.published.snapshot, self.query.in_flight
        if flight is None or not self.query.alive:
            return None
        return snapshot.watched(flight.moved_at, snapshot.at)

    @property
    def live_progress(self) -> Progress | None:
        """The last progress while the run is active and the stall window has not passed.

        A dead, hung or idle query has no rate.
        """
        return self.progress if self._is_live(self.query.progress_at) else None

    def _is_live(self, at: float | None) -> bool:
        """Whether a figure from the time ``at`` is still current."""
        age, window = self.age(at), self.health.window_seconds
        if age is None or not self.query.alive:
            return False
        return age <= (STALE_POLL_SECONDS if window is None else window)

    @property
    def error_class(self) -> str | None:
        """The error class of the unrecovered failure."""
        ended = self.query.failure
        return ended.failure.error_class if ended is not None and ended.failure else None

    @property
    def upstream(self) -> tuple[str, ...]:
        """The queries that write what it reads, at most ``MAX_NEIGHBOURS``."""
        return self.published.flow.upstream.get(self.label, ())[:MAX_NEIGHBOURS]

    @property
    def downstream(self) -> tuple[str, ...]:
        """The queries that read what it writes, at most ``MAX_NEIGHBOURS``."""
        return self.published.flow.downstream.get(self.label, ())[:MAX_NEIGHBOURS]

    @property
    def end_to_end_age_seconds(self) -> float | None:
        """The age of the newest data that has passed from the first sources into its table."""
        age = self.age(self.published.passed.get(self.label))
        return None if age is None else max(0.0, age)

    @cached_property
    def fresh_polls(self) -> dict[int, SourcePoll]:
        """The polls that are current: their source answers, or answered a short while ago."""
        polls, oldest = self.query.polls, self.published.snapshot.at - STALE_POLL_SECONDS
        if not self.query.source_trouble:
            return polls
        return {index: poll for index, poll in polls.items() if poll.at >= oldest}

    @cached_property
    def reported_lags(self) -> dict[str, float]:
        """The lags that Spark reported after the last batch, by source index, while current.

        By index because two sources may share a description, which may hold a path or a topic
        list of any length.
        """
        return self._reported(attrgetter("lag_offsets"))

    def _reported(self, figure: Callable[[SourceProgress], float | None]) -> dict[str, float]:
        query = self.query
        if self.progress is None or not any(
            map(self._is_live, (query.progress_at, query.last_idle_at))
        ):
            return {}
        return {
            str(index): reported
            for index, source in enumerate(self.progress.sources)
            if (reported := figure(source)) is not None
        }

    @cached_property
    def lags(self) -> dict[str, float]:
        """Known lags by source index: from the broker if it can be polled, else Spark's.

        The broker's figure also counts for a failed query. An old poll of a broker that no longer
        answers does not describe the present: then there is none, instead of Spark's frozen one.
        """
        polled = set(map(str, self.query.polls))
        lags = {index: lag for index, lag in self.reported_lags.items() if index not in polled}
        for index, poll in self.fresh_polls.items():
            if poll.lag_offsets is not None:
                lags[str(index)] = float(poll.lag_offsets)
        return lags

    @cached_property
    def topic_lags(self) -> dict[str, dict[str, int]]:
        """The lag of each topic by source index, from the broker; a table's topic is empty."""
        return {str(index): poll.lag_by_topic for index, poll in self.fresh_polls.items()}

    @cached_property
    def topic_ages(self) -> dict[str, dict[str, float]]:
        """The age of the first unread record of each topic by source index, if known.

        It is 0 if nothing is unread. Data unread at the poll counts as still unread unless a
        commit was seen since.
        """
        ages: dict[str, dict[str, float]] = {}
        for index, poll in self.fresh_polls.items():
            moved = self.query.alive and (self.query.last_commit_at or poll.at) > poll.at
            now = poll.wall if moved else self.published.wall
            topics = {topic: 0.0 for topic, lag in self.topic_lags[str(index)].items() if not lag}
            for topic, since in poll.waiting_since_by_topic.items():
                topics[topic] = max(0.0, now - since)
            ages[str(index)] = topics
        return ages

    @cached_property
    def source_ages(self) -> dict[str, float]:
        """The age of the first unread record of each source, if known."""
        reported = self._reported(attrgetter("behind_seconds"))
        polled = {index: max(ages.values()) for index, ages in self.topic_ages.items() if ages}
        return reported | polled

    @cached_property
    def topic_retention(self) -> dict[tuple[str, str], tuple[float, float | None]]:
        """By source and topic: the used share of the retention, and the seconds left, if known.

        Both are those of the topic's worst partition.
        """
        worst: dict[tuple[str, str], tuple[float, float | None]] = {}
        now = self.published.snapshot.at
        for index in self.query.polls:
            edges = self.query.retention.get(index)
            for exposure in edges.exposures.values() if edges is not None else ():
                place = str(index), topic_of(exposure.partition)
                used, left = worst.get(place, (0.0, None))
                lefts = [s for s in (left, exposure.left_seconds(now)) if s is not None]
                worst[place] = max(used, exposure.used(now)), min(lefts, default=None)
        return worst


def rows(published: PublishedState) -> tuple[QueryRow, ...]:
    """All queries: first the known ones, then those only evaluated or expected."""
    seen = published.snapshot.labels()
    names = {query.name for query in published.snapshot.queries}
    absent = [base_label(name) for name in published.expected if name not in names]
    labels = dict.fromkeys([*seen, *published.health, *absent])
    return tuple(QueryRow(published, label, seen.get(label)) for label in labels)
