"""What ends ``await_any_failure``: a failure, or that nothing is left that could fail."""

from __future__ import annotations

from typing import Literal

from ..alerting.evaluate import Evaluation
from ..alerting.finding import WHOLE_DRIVER, Finding, QueryHealth, Severity
from ..alerting.incidents.lifecycle import Evaluated
from ..alerting.kinds import DRIVER_DOWN, QUERY_STALLED, QUERY_STOPPED, Code, SharedCause
from ..alerting.words.reasons import JVM_ENDED, SESSION_GONE
from ..core.states import QueryState
from ..listener.probe_report import Context
from ..listener.state.snapshot import Snapshot

CRITICAL_STALL = (QUERY_STALLED, Severity.CRITICAL.value)
Returned = Literal["completed", "stopped", "closed", "timeout"]
"""Why ``await_any_failure`` returned."""
END_ALERTS = (QUERY_STOPPED, DRIVER_DOWN)
"""Alerts that mean that a query, or the whole driver, no longer runs."""


class QueryFailure(Exception):  # noqa: N818 - named in the public contract
    """A streaming query failed or disappeared.

    ``query`` is ``*`` when the JVM is gone, or the Spark Connect session of a query to come.
    """

    def __init__(self, query: str, reason: str) -> None:
        super().__init__(f"streaming query {query}: {reason}")
        self.query = query
        self.reason = reason

    def __reduce__(self) -> tuple[type[QueryFailure], tuple[str, str]]:
        """Pickle what makes it: ``multiprocessing`` brings it from a worker to its parent."""
        return QueryFailure, (self.query, self.reason)


def first_failure(snapshot: Snapshot, evaluation: Evaluation) -> QueryFailure | None:
    """An exception for the first of this process's queries that failed or is gone."""
    foreign = _foreign(snapshot)
    for label, health in evaluation.health.items():
        has_failed = health.state is QueryState.FAILED and not health.restarted
        is_gone = health.state is QueryState.STOPPED_UNEXPECTEDLY and health.reported_elsewhere
        if label not in foreign and ((has_failed and _counts(health)) or is_gone):
            return QueryFailure(label, health.reason)
    for finding in evaluation.findings:
        # Nobody waits once the main program has ended, except threads that end with it; and the
        # end of the attempt before says nothing about this one.
        if finding.shared is SharedCause.PROGRAM_ENDED or finding.code is Code.ATTEMPT_LOST:
            continue
        if finding.alertname in END_ALERTS and not foreign.issuperset(_subjects(finding)):
            return QueryFailure(finding.query, finding.reason)
    if snapshot.context is Context.JVM_GONE:
        return QueryFailure(WHOLE_DRIVER, JVM_ENDED)
    if snapshot.context is Context.SESSION_ENDED and why_over(snapshot, evaluation) is None:
        return QueryFailure(WHOLE_DRIVER, SESSION_GONE)
    return None


def first_stall(evaluated: Evaluated) -> QueryFailure | None:
    """An exception for the first of this process's queries with a critical stall.

    Silences do not matter. Like the alert, the stall must be found twice in a row, unless
    another process reports it.
    """
    foreign = _foreign(evaluated.snapshot)
    firing = {
        alert.labels["query"]
        for alert in evaluated.alerts
        if (alert.name, alert.labels["severity"]) == CRITICAL_STALL
    }
    for finding in evaluated.evaluation.findings:
        is_firing = finding.query in firing and not foreign.issuperset(_subjects(finding))
        if is_firing and (finding.alertname, finding.severity.value) == CRITICAL_STALL:
            return QueryFailure(finding.query, finding.reason)
    for label, health in evaluated.evaluation.health.items():
        is_stalled = health.state is QueryState.STALLED and health.severity is Severity.CRITICAL
        if is_stalled and health.reported_elsewhere and label not in foreign:
            return QueryFailure(label, health.reason)
    return None


def _subjects(finding: Finding) -> tuple[str, ...]:
    return finding.members or (finding.query,)


def _foreign(snapshot: Snapshot) -> frozenset[str]:
    """The labels of queries that belong, or last belonged, to other processes on the same JVM.

    An expected query counts as this process's own, wherever it runs.
    """
    is_own = snapshot.ownership.is_own
    expected = snapshot.expected
    return frozenset(
        label
        for label, query in snapshot.labels().items()
        if query.name not in expected
        and (query.run.reported_elsewhere or not is_own(query.run.session))
    )


def _counts(health: QueryHealth) -> bool:
    """Whether the waiting application cares: also when another process reports it."""
    return health.reported_elsewhere or not health.ignored


def why_over(snapshot: Snapshot, evaluation: Evaluation) -> Returned | None:
    """Why no query is left that could fail: all completed, or Spark was stopped; None if one is.

    In a Spark Connect session that has ended, none starts any more.
    """
    foreign = _foreign(snapshot)
    health = evaluation.health.items()
    states = {query.state for label, query in health if _counts(query) and label not in foreign}
    if states == {QueryState.COMPLETED}:
        return "completed"
    has_ended = snapshot.context is Context.SESSION_ENDED
    if has_ended and states <= {QueryState.COMPLETED, QueryState.STOPPED}:
        return "stopped"
    return "stopped" if snapshot.context.is_on_purpose else None
