"""Whether a query has recovered: enough time, with commits or idleness in it.

The absence of its finding proves little: a restarted query has no finding either, until it fails
again. Times are monotonic seconds.
"""

from __future__ import annotations

import msgspec

from ...core.states import QueryState
from ...listener.foresight.catching_up import NOW, caught_up
from ...listener.probe_report import Context
from ...listener.state.identity import RESERVED, UNNAMED, is_of_namesake
from ...listener.state.query import Query
from ...listener.state.snapshot import Snapshot
from ..alert import CRITICAL, WARNING, AlertOutcome, is_generic, recovered
from ..evaluate import Evaluation
from ..evidence import CatchingUp
from ..finding import NOT_WORKING, WHOLE_DRIVER, QueryHealth, Severity
from ..words.evidence import caught_up_text

UNHEALTHY = NOT_WORKING | {
    QueryState.FLAPPING,
    QueryState.REWOUND,
    QueryState.SLOW,
    QueryState.LAGGING,
    QueryState.WATERMARK_STUCK,
}
COMMITS_OF_HEALTH = 2
POLL_IS_OLD_SECONDS = 10.0
"""Ten calm polls of the probe at its default interval."""
MAX_REMEMBERED = 20_000


class RecoveryWindow(msgspec.Struct, frozen=True, gc=False):
    """A query has been healthy since ``since``.

    ``commits`` and ``restarts`` are the query's at that time; ``active``: its run had shown
    activity by then, or had completed.
    """

    since: float
    commits: int
    restarts: int = 0
    active: bool = False


class DriverHealth:
    """The health of the queries of one driver at one time.

    It uses ``QueryHealth`` rather than findings: a finding may have been merged into one of the
    whole driver, or replaced by flapping, while the query is still unhealthy.
    """

    def __init__(self, evaluation: Evaluation, snapshot: Snapshot, now: float) -> None:
        self.now = now
        self.queries = snapshot.labels()
        self.labels = evaluation.health.keys() | self.queries.keys()
        """Of all queries that exist or are expected."""
        self._health = evaluation.health
        self._listed = {label for finding in evaluation.findings for label in finding.members}
        self._snapshot = snapshot

    def has_seen(self, label: str) -> bool:
        """Whether the query itself was seen, and not only others of its name."""
        return label in RESERVED or label in self.queries

    def knows(self, label: str) -> bool:
        """Whether the query, or any that the label covers, was seen."""
        is_here = bool(self.queries) if label == WHOLE_DRIVER else label in self.queries
        return is_here or bool(self._members(label))

    def recovery(
        self, label: str, severity: str, before: RecoveryWindow | None
    ) -> RecoveryWindow | None:
        """The recovery that continues or begins now; None while it is unhealthy at ``severity``.

        A warning does not keep a critical alert open: it has its own alert. A recovery does not
        begin before the run has shown activity. It is dropped while no poll shows whether the
        query is still in its last batch: then nothing proves that the query is healthy. Of unnamed
        queries, those that another alert lists do not count.
        """
        members = self._members(label)
        if not members and label != UNNAMED:
            if self._is_unhealthy(label, severity) or self._is_unseen(label):
                return None
            continues = before is not None and _continues(before, self.queries.get(label))
            return before if continues else self._recovering(label)
        listed = self._listed if label == UNNAMED else frozenset()
        if any(
            (own not in listed and self._is_unhealthy(own, severity)) or self._is_unseen(own)
            for own in members
        ):
            return None
        if any(self._health[own].state is QueryState.STARTING for own in members):
            return before if label == UNNAMED else None
        return before or RecoveryWindow(self.now, 0)

    def _recovering(self, label: str) -> RecoveryWindow | None:
        """A recovery that begins now; None while a watched run has not shown activity."""
        query, health = self.queries.get(label), self._health.get(label)
        if query is None or health is None:
            return RecoveryWindow(self.now, 0)
        if query.run.alive and not query.run.activity_seen and not health.ignored:
            return None
        active = query.run.alive or health.state is QueryState.COMPLETED
        return RecoveryWindow(
            self.now, query.history.totals.commits, query.history.totals.restarts, active
        )

    def has_recovered(
        self,
        label: str,
        recovery: RecoveryWindow,
        seconds: float,
        commits_before: int | None = None,
    ) -> bool:
        """Whether ``recovery`` has lasted for ``seconds`` and is proven.

        Two commits or an idle event prove it. Where the trigger interval is longer than
        ``seconds``, so does one commit more than ``commits_before``, if given, those that the query
        had made when it was last unhealthy: waiting for the next trigger proves no more. No proof
        is needed for a query that has completed, was stopped, is ignored or has been forgotten, nor
        for the whole driver. If the label covers several queries, each that runs must have been
        active.
        """
        if self.watched_since(recovery.since) < seconds:
            return False
        members = self._members(label)
        if members or label == UNNAMED:
            return all(self._is_proven(own, recovery.since) for own in members)
        query, health = self.queries.get(label), self._health.get(label)
        if query is None or health is None or _needs_no_proof(health):
            return True
        commits = query.history.totals.commits
        if commits_before is not None and _is_rare(query, seconds) and commits > commits_before:
            return True
        return _is_idle(query, recovery) or commits - recovery.commits >= COMMITS_OF_HEALTH

    def _is_proven(self, label: str, since: float) -> bool:
        """Whether one of several queries has shown since then that it works, if it runs.

        One that another alert lists is not healthy, and recovers by itself; but it is not the one
        that is meant here only if its run has worked before.
        """
        run = self.queries[label].run
        if not run.alive or self._health[label].ignored:
            return True
        is_other = label in self._listed
        return run.activity_seen and (is_other or run.last_activity_at > since)

    def outcome(self, label: str, alertname: str, recovery: RecoveryWindow) -> AlertOutcome:
        """What a query does after its alert has ended."""
        if label in RESERVED or self._members(label):
            return recovered(alertname, of_one_query=False)
        query, health = self.queries.get(label), self._health.get(label)
        if query is None or health is None or health.ignored:
            return AlertOutcome.UNWATCHED
        ends = {
            QueryState.COMPLETED: AlertOutcome.COMPLETED,
            QueryState.STOPPED: AlertOutcome.STOPPED,
        }
        if health.state in ends:
            return ends[health.state]
        commits = query.history.totals.commits - recovery.commits
        is_idle = commits < COMMITS_OF_HEALTH and _is_idle(query, recovery)
        return AlertOutcome.IDLE if is_idle else recovered(alertname)

    def caught_up(self, label: str, wall: float) -> str:
        """When a query that works again has caught up; empty if it has, or that is unknown.

        ``wall`` is the Unix time now.
        """
        query = self.queries.get(label)
        answer = None if query is None else caught_up(query, self.now)
        return "" if answer is None or answer == NOW else caught_up_text(CatchingUp(answer, wall))

    def _members(self, label: str) -> list[str]:
        """The labels of the queries that this one covers; none if it is that of one query.

        ``UNNAMED`` covers all queries without a name. The label of a namesake that an earlier
        process has seen covers all queries of that name, if there are several: each process
        decides which of them has the name itself as its label.
        """
        if label == UNNAMED:
            return [label for label, query in self.queries.items() if query.is_unnamed]
        if label in self.queries or label == WHOLE_DRIVER:
            return []
        queries = self.queries.values()
        same = [query.label for query in queries if is_of_namesake(label, query.name)]
        return same if len(same) > 1 else []

    def _is_unseen(self, label: str) -> bool:
        query, health = self.queries.get(label), self._health.get(label)
        if query is None or health is None or health.ignored or not query.run.alive:
            return False
        flight, polled_at = query.run.in_flight, query.run.probed_at
        if flight is None or flight.batch_id is None or polled_at is None:
            return False
        is_old = self._snapshot.watched(polled_at, self.now) > POLL_IS_OLD_SECONDS
        return is_old and query.run.last_activity_at <= polled_at

    def _is_unhealthy(self, label: str, severity: str) -> bool:
        query, health = self.queries.get(label), self._health.get(label)
        if health is None:
            return False
        if health.is_unknown or health.ignored:
            return health.is_unknown
        states = UNHEALTHY
        if severity == CRITICAL:
            # A stalled or slow query may be a warning or critical.
            is_slow = health.severity is Severity.CRITICAL and health.state is QueryState.SLOW
            states = frozenset() if health.severity is Severity.WARNING else NOT_WORKING
            states |= {QueryState.SLOW} if is_slow else set()
        if health.state in states or query is None:
            # Without a query: it is expected, but has not been seen yet.
            return True
        if health.state is not QueryState.STOPPED or query.run.stop_expected:
            return False
        # Any stop that is not planned may soon raise ``StreamingQueryStopped``. If the trigger is
        # unknown, the query may have been allowed to end. One that ends by itself was cut off if
        # its SparkContext stopped by itself.
        context, trigger = self._snapshot.context, query.run.trigger
        may_end = trigger is None or (trigger.ends_by_itself and context is not Context.STOPPED)
        return not (context.is_on_purpose or may_end)

    def watched_since(self, at: float) -> float:
        """Seconds since then, without the time in which querypulse was paused."""
        return self._snapshot.watched(at, self.now)


def _needs_no_proof(health: QueryHealth) -> bool:
    return health.ignored or health.state in {QueryState.STOPPED, QueryState.COMPLETED}


def _is_rare(query: Query, seconds: float) -> bool:
    """Whether the run has committed, and its next trigger is further away than ``seconds``."""
    trigger = query.run.trigger
    is_far = trigger is not None and trigger.interval_seconds > seconds
    return is_far and query.run.last_commit_at is not None


def _is_idle(query: Query, recovery: RecoveryWindow) -> bool:
    """Whether the query has been idle during the recovery."""
    return query.run.last_idle_at is not None and query.run.last_idle_at > recovery.since


def _continues(before: RecoveryWindow, query: Query | None) -> bool:
    """Whether the recovery goes on.

    A recovery that began when a run was stopped, or had vanished, ends when that run reappears or
    the next one starts, unless it commits.
    """
    if query is None:
        return before.commits == 0
    totals = query.history.totals
    if totals.commits != before.commits:
        # Fewer commits than before: another query has this name now.
        return totals.commits > before.commits
    return before.active or (totals.restarts == before.restarts and not query.run.alive)


class FirstHealth:
    """Finds the queries that are healthy for the first time in this process, by severity.

    An earlier process may have left their incidents open. It needs no memory of it: the keys follow
    from the names. With a generic app name the incidents may be those of another running driver.
    """

    def __init__(self, app: str) -> None:
        self._is_generic = is_generic(app)
        self._windows: dict[tuple[str, str], RecoveryWindow] = {}
        self._healthy: dict[tuple[str, str], None] = {}

    def update(self, health: DriverHealth, seconds: float) -> list[tuple[str, str]]:
        """Severity and label of what has been healthy for ``seconds`` now, ``*`` if all are."""
        if self._is_generic:
            return []
        # What is healthy without a warning is healthy without a critical alert, too.
        unproven = [label for label in health.queries if (WARNING, label) not in self._healthy]
        windows = {
            (severity, label): health.recovery(
                label, severity, self._windows.get((severity, label))
            )
            for label in unproven
            for severity in (CRITICAL, WARNING)
            if (severity, label) not in self._healthy
        }
        self._windows = {key: window for key, window in windows.items() if window is not None}
        proven = [
            key
            for key, window in self._windows.items()
            if health.has_recovered(key[1], window, seconds)
        ]
        self._healthy.update(dict.fromkeys(proven))
        news = [key for key in proven if not health.queries[key[1]].is_unnamed]
        if proven:
            shared = self._shared(health)
            self._healthy.update(dict.fromkeys(shared))
            news += shared
        while len(self._healthy) > MAX_REMEMBERED:
            del self._healthy[next(iter(self._healthy))]
        return sorted(news, key=lambda key: key[0] == WARNING)

    def _shared(self, health: DriverHealth) -> list[tuple[str, str]]:
        """The labels that cover several queries, if all of those are healthy now."""
        unnamed = [label for label, query in health.queries.items() if query.is_unnamed]
        return [
            (severity, shared)
            for severity in (CRITICAL, WARNING)
            for shared, labels in ((UNNAMED, unnamed), (WHOLE_DRIVER, health.labels))
            if labels
            and (severity, shared) not in self._healthy
            and all((severity, label) in self._healthy for label in labels)
        ]
