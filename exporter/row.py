"""One query as every reader sees it: what is known and what was judged, side by side."""

from __future__ import annotations

import msgspec

from ..listener.events import Progress
from ..listener.identity import base_label
from ..listener.probing import RunFacts
from ..listener.query import InFlight, Query, Totals
from ..listener.sources.report import SourcePoll
from .published_state import PublishedState, QueryHealthView

STALE_POLL_SECONDS = 120.0
"""What a broker said this long ago, and nobody has said since, is history."""

OVER = frozenset({"stopped", "completed"})
"""States of a query that has come to an end as it should."""


class _NotEvaluated(msgspec.Struct, frozen=True):
    """Stands in until the first verdict."""

    state: str = "starting"
    reason: str = "not evaluated yet"
    ignored: bool = False
    window_seconds: float | None = None
    lag_allowed_offsets: float | None = None
    restart_budget: int | None = None
    expected_input_seconds: float | None = None


class QueryRow(msgspec.Struct, frozen=True):
    """One query under the label it is shown by; ``query`` is None while nobody has seen it."""

    board: PublishedState
    label: str
    query: Query | None
    health: QueryHealthView

    @property
    def state(self) -> str:
        """The state as plain text: an enum's member would print as ``State.FAILED``."""
        plain: str = msgspec.to_builtins(self.health.state)
        return plain

    @property
    def is_expected(self) -> bool:
        """Whether the settings name it as one that must be there."""
        if self.query is not None:
            return self.query.name in self.board.expected
        return any(self.label == base_label(name) for name in self.board.expected)

    @property
    def totals(self) -> Totals:
        """Its counters; a query on the roster has them before it is seen, so none is born at 1."""
        return self.query.totals if self.query is not None else Totals()

    @property
    def last_commit_age_seconds(self) -> float | None:
        """Seconds since the last commit that was seen to happen in this run."""
        if self.query is None or self.query.last_commit_at is None:
            return None
        return self.board.snapshot.at - self.query.last_commit_at

    @property
    def last_idle_age_seconds(self) -> float | None:
        """Seconds since this run was last seen to have nothing to do."""
        if self.query is None or self.query.last_idle_at is None:
            return None
        return self.board.snapshot.at - self.query.last_idle_at

    @property
    def last_input_age_seconds(self) -> float | None:
        """Seconds since this run last read rows."""
        if self.query is None or self.query.last_input_at is None:
            return None
        return self.board.snapshot.at - self.query.last_input_at

    @property
    def in_flight(self) -> InFlight | None:
        """The batch in flight; None while there is none."""
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
        """Seconds since the batch in flight was first seen; None while there is none."""
        flight = self.in_flight
        return self.board.snapshot.at - flight.since if flight is not None else None

    @property
    def facts(self) -> RunFacts | None:
        """What never changes in the present run."""
        return self.query.facts if self.query is not None else None

    @property
    def progress(self) -> Progress | None:
        """What Spark told of the present run's last batch."""
        return self.query.progress if self.query is not None else None

    @property
    def live_progress(self) -> Progress | None:
        """The same while it tells of the present: the run lives, and its window is not over."""
        at = self.query.progress_at if self.query is not None else None
        return self.progress if self._is_live(at) else None

    def _is_live(self, at: float | None) -> bool:
        """Whether what was known ``at`` that moment can be shown without its age."""
        if self.query is None or not self.query.alive or at is None:
            return False
        window = self.health.window_seconds
        return self.board.snapshot.at - at <= (STALE_POLL_SECONDS if window is None else window)

    @property
    def no_progress_seconds(self) -> float | None:
        """Seconds in which what the query is doing was not seen to get on; None while it waits.

        A batch, of which tasks finish, or a question to a source.
        """
        query = self.query
        if query is None or not query.alive or query.in_flight is None:
            return None
        return self.board.snapshot.watched(query.in_flight.moved_at, self.board.snapshot.at)

    @property
    def is_needed(self) -> bool:
        """Whether it should go on, so that its driver should: it neither ended nor will.

        A query that has failed should go on too. One whose trigger nobody knows counts as
        one that does not end by itself.
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
        """Lags as Spark reported them after the last batch, by the source's index.

        The index, not the description: two sources may share one, and it may hold a path
        or a topic list of any length.
        """
        if self.progress is None:
            return {}
        return {
            str(index): source.lag_offsets
            for index, source in enumerate(self.progress.sources)
            if source.lag_offsets is not None
        }

    @property
    def polls(self) -> dict[int, SourcePoll]:
        """What brokers last said of the present run, by the source's index."""
        return self.query.polls if self.query is not None else {}

    @property
    def fresh_polls(self) -> dict[int, SourcePoll]:
        """Those that still tell something, because they answer or did a short while ago."""
        if self.query is None or not self.query.source_trouble:
            return self.polls
        oldest = self.board.snapshot.at - STALE_POLL_SECONDS
        return {index: poll for index, poll in self.polls.items() if poll.at >= oldest}

    @property
    def lag_by_source(self) -> dict[str, float]:
        """Known lags: as the broker has it where it can be asked, else as Spark reports it."""
        lags = self.reported_lag_by_source
        for index in self.polls:
            lags.pop(str(index), None)
        for index, poll in self.fresh_polls.items():
            if poll.lag_offsets is not None:
                lags[str(index)] = float(poll.lag_offsets)
        return lags

    @property
    def lag_seconds_by_source(self) -> dict[str, float]:
        """How long the first record that waits in each source has waited, where it is known."""
        ages = {}
        for index, poll in self.fresh_polls.items():
            known = self.lag_seconds_by_topic(poll)
            if known:
                ages[str(index)] = max(known.values())
        return ages

    def lag_seconds_by_topic(self, poll: SourcePoll) -> dict[str, float]:
        """The same by topic: 0 where nothing waits.

        What waited at the look is taken to wait still unless a commit was seen since.
        """
        query = self.query
        moved = query is not None and query.alive and (query.last_commit_at or poll.at) > poll.at
        now = poll.wall if moved else self.board.wall
        ages = {topic: 0.0 for topic, lag in poll.lag_by_topic.items() if not lag}
        for topic, since in poll.waiting_since_by_topic.items():
            ages[topic] = max(0.0, now - since)
        return ages

    @property
    def lag_offsets(self) -> float | None:
        """The sum of the known lags; what Spark reported counts while it tells of the present."""
        query, lags = self.query, self.lag_by_source
        reported_at = (query.progress_at, query.last_idle_at) if query is not None else ()
        if not any(map(self._is_live, reported_at)):
            lags = {index: lag for index, lag in lags.items() if int(index) in self.fresh_polls}
        return sum(lags.values()) if lags else None

    @property
    def lag_seconds(self) -> float | None:
        """The longest that a record is known to wait."""
        return max(self.lag_seconds_by_source.values(), default=None)

    @property
    def error_class(self) -> str | None:
        """The class of the failure that still stands."""
        ended = self.query.failure if self.query is not None else None
        return ended.failure.error_class if ended is not None and ended.failure else None


def rows(board: PublishedState) -> tuple[QueryRow, ...]:
    """All queries: those known, then those only judged or expected."""
    known = board.snapshot.labels()
    names = {query.name for query in board.snapshot.queries}
    absent = [base_label(name) for name in board.expected if name not in names]
    labels = dict.fromkeys([*known, *board.health, *absent])
    return tuple(
        QueryRow(board, label, known.get(label), board.health.get(label) or _NotEvaluated())
        for label in labels
    )
