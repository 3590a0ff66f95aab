"""Whether a query is well again: some time, and commits or idleness in it. Pure.

That its finding has gone proves little: a query that was started anew has no finding either,
until it fails again. Times are monotonic seconds.
"""

from __future__ import annotations

from functools import partial

import msgspec

from ...listener.identity import RESERVED, UNNAMED
from ...listener.probing import Context
from ...listener.query import Query
from ...listener.snapshot import Snapshot
from ..evaluate import Evaluation, QueryHealth
from ..finding import WHOLE_DRIVER, QueryState, Severity
from ..headline import COMPLETED, IDLE, STOPPED, UNWATCHED, recovered

NOT_WORKING = frozenset(
    {QueryState.FAILED, QueryState.MISSING, QueryState.STOPPED_UNEXPECTEDLY, QueryState.STALLED}
)
UNHEALTHY = NOT_WORKING | {
    QueryState.FLAPPING,
    QueryState.REWOUND,
    QueryState.SLOW,
    QueryState.LAGGING,
    QueryState.WATERMARK_STUCK,
}
COMMITS_OF_HEALTH = 2
POLL_IS_OLD_SECONDS = 10.0
"""Twenty polls of the probe at its default interval."""


class RecoveryWindow(msgspec.Struct, frozen=True, gc=False):
    """A query has not been sick since then; ``commits`` is how many it had made by then."""

    since: float
    commits: int


class DriverHealth:
    """The queries of one driver at one moment, as health is judged.

    It rests on verdicts rather than findings: a finding may have gone into one of the whole
    driver, or into that the query flaps, while the query is as sick as before.
    """

    def __init__(self, evaluation: Evaluation, snapshot: Snapshot, now: float) -> None:
        self.now = now
        self.queries = snapshot.labels()
        self._health = evaluation.health
        self._reported = {label for one in evaluation.findings for label in one.members}
        self._snapshot = snapshot

    @property
    def expected(self) -> frozenset[str]:
        """The labels of all queries that are there or should be."""
        return frozenset(self._health) | frozenset(self.queries)

    def knows(self, label: str) -> bool:
        """Whether the query was seen; of the whole driver or of the unnamed, any of its queries."""
        if label == UNNAMED:
            return any(query.is_unnamed for query in self.queries.values())
        return bool(self.queries) if label == WHOLE_DRIVER else label in self.queries

    def is_unnamed(self, label: str) -> bool:
        """Whether it is the label of a query without a name."""
        query = self.queries.get(label)
        return query is not None and query.is_unnamed

    def recovery(
        self, label: str, severity: str, before: RecoveryWindow | None
    ) -> RecoveryWindow | None:
        """The calm that lasts, or begins now; None while the query is as sick as ``severity``.

        A warning's matter does not keep a critical alert open: it is told by itself. No calm
        begins while a query is starting, and none lasts while no poll shows whether it is still in
        the batch that it was last seen in: nothing shows that it is healthy.
        """
        if label == UNNAMED:
            return self._recovery_of_unnamed(severity, before)
        query, health = self.queries.get(label), self._health.get(label)
        if self._is_unhealthy(label, severity):
            return None
        if query is not None and health is not None and self._is_unseen_in_batch(query, health):
            return None
        commits = 0 if query is None else query.totals.commits
        # Fewer commits than before: another query goes by this name now.
        if before is not None and before.commits <= commits:
            return before
        starting = health is not None and health.state is QueryState.STARTING
        return None if starting else RecoveryWindow(self.now, commits)

    def has_recovered(self, label: str, recovery: RecoveryWindow, seconds: float) -> bool:
        """Whether ``recovery`` has lasted for ``seconds`` and is real.

        Two commits or an idleness show it. A query that has ended well, is of no interest any
        more or has been forgotten cannot show anything, nor can the whole driver. Each query
        without a name that runs must have shown life.
        """
        if self.lasted(recovery) < seconds:
            return False
        if label == UNNAMED:
            return all(map(partial(self._has_shown_life, recovery), self.queries.values()))
        query, health = self.queries.get(label), self._health.get(label)
        if query is None or health is None or health.ignored:
            return True
        if health.state in {QueryState.STOPPED, QueryState.COMPLETED}:
            return True
        idle = query.last_idle_at is not None and query.last_idle_at > recovery.since
        return idle or query.totals.commits - recovery.commits >= COMMITS_OF_HEALTH

    def outcome(self, label: str, alertname: str, recovery: RecoveryWindow | None) -> str:
        """What a query whose alert is over does now, in the words of a resolve."""
        if label in RESERVED:
            return recovered(alertname, of_one_query=False)
        query, health = self.queries.get(label), self._health.get(label)
        if query is None or health is None or health.ignored:
            return UNWATCHED[0]
        if health.state is QueryState.COMPLETED:
            return COMPLETED[0]
        if health.state is QueryState.STOPPED:
            return STOPPED[0]
        commits = 0 if recovery is None else query.totals.commits - recovery.commits
        return recovered(alertname) if commits >= COMMITS_OF_HEALTH else IDLE[0]

    def _is_unseen_in_batch(self, query: Query, health: QueryHealth) -> bool:
        flight, polled_at = query.in_flight, query.probed_at
        if flight is None or flight.batch_id is None or polled_at is None:
            return False
        if query.last_sign_at > polled_at or health.ignored or not query.alive:
            return False
        return self._snapshot.watched(polled_at, self.now) > POLL_IS_OLD_SECONDS

    def _has_shown_life(self, recovery: RecoveryWindow, query: Query) -> bool:
        """Whether it is none of those without a name that run, or has shown life since."""
        health = self._health.get(query.label)
        if not query.is_unnamed or health is None or health.ignored:
            return True
        return health.state is not QueryState.RUNNING or query.last_sign_at > recovery.since

    def _recovery_of_unnamed(
        self, severity: str, before: RecoveryWindow | None
    ) -> RecoveryWindow | None:
        """None while one is unhealthy without being reported by another alert of theirs."""
        own = [label for label in self.queries if self.is_unnamed(label)]
        if any(
            label not in self._reported and self._is_unhealthy(label, severity) for label in own
        ):
            return None
        states = {self._health[label].state for label in own if label in self._health}
        return (
            before
            if before is not None or QueryState.STARTING in states
            else RecoveryWindow(self.now, 0)
        )

    def _is_unhealthy(self, label: str, severity: str) -> bool:
        query, health = self.queries.get(label), self._health.get(label)
        return health is not None and _is_unhealthy(query, health, severity, self._snapshot.context)

    def lasted(self, recovery: RecoveryWindow) -> float:
        """Seconds of ``recovery`` in which we were awake to watch."""
        return self._snapshot.watched(recovery.since, self.now)


def _is_unhealthy(
    query: Query | None, health: QueryHealth, severity: str, context: Context
) -> bool:
    if health.ignored:
        return False
    states = UNHEALTHY if severity == Severity.WARNING.value else _grave_states(health)
    if health.state in states or query is None:
        # Without a query: it is expected, and nobody has seen it yet.
        return True
    return health.state is QueryState.STOPPED and not _on_purpose(query, context)


def _grave_states(health: QueryHealth) -> frozenset[QueryState]:
    """What is critical; that a query stalls or is slow may be a warning or critical."""
    if health.severity is Severity.WARNING:
        return frozenset()
    return NOT_WORKING | {QueryState.SLOW} if health.severity is Severity.CRITICAL else NOT_WORKING


def _on_purpose(query: Query, context: Context) -> bool:
    """Whether the end is planned; any other may soon be a ``StreamingQueryStopped``.

    Without its trigger it is not known that the query should have gone on.
    """
    if context.is_on_purpose or query.stop_expected:
        return True
    trigger = query.trigger
    return trigger is None or trigger.ends_by_itself
