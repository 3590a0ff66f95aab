"""The end of ``await_any_failure``."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ..alerting.evaluate import Judgement, Verdict
from ..alerting.finding import WHOLE_DRIVER, Severity, State
from ..alerting.rules import driver_down, query_stalled, query_stopped
from ..listener.probing import Context
from ..listener.redaction import redact
from ..listener.snapshot import Snapshot

if TYPE_CHECKING:
    # The command line works without PySpark, which the worker needs.
    from .worker import Judged

CRITICAL_STALL = (query_stalled.NAME, Severity.CRITICAL.value)
ENDS = (query_stopped.NAME, driver_down.NAME)
"""Alerts that mean that a query, or the whole driver, is there no more."""


class QueryFailure(Exception):  # noqa: N818 - named in the public contract
    """A streaming query failed or vanished; ``query`` is ``*`` when the JVM is gone."""

    def __init__(self, query: str, reason: str) -> None:
        super().__init__(f"streaming query {query}: {reason}")
        self.query = query
        self.reason = reason


def first_failure(snapshot: Snapshot, judgement: Judgement) -> QueryFailure | None:
    """The first of this process's queries that has failed or is gone, as an exception."""
    foreign = _foreign(snapshot)
    for label, verdict in judgement.verdicts.items():
        if verdict.state is State.FAILED and _counts(verdict) and label not in foreign:
            return QueryFailure(label, verdict.reason)
    for finding in judgement.findings:
        about = finding.members or (finding.query,)
        if finding.alertname in ENDS and not foreign.issuperset(about):
            return QueryFailure(finding.query, finding.reason)
    for label, query in snapshot.labels().items():
        gone = judgement.verdicts.get(label) if query.gone_at is not None else None
        if gone is not None and _is_elsewhere(gone, State.STOPPED_UNEXPECTEDLY, label, foreign):
            return QueryFailure(label, gone.reason)
    if snapshot.context is Context.JVM_GONE:
        return QueryFailure(WHOLE_DRIVER, driver_down.ENDED)
    return None


def first_stall(judged: Judged) -> QueryFailure | None:
    """The first of this process's queries whose stall is critical; silences do not matter to it.

    Like the alert it must be found twice, unless another process reports it.
    """
    foreign = _foreign(judged.snapshot)
    firing = {(one.name, one.labels["query"], one.labels["severity"]) for one in judged.alerts}
    for finding in judged.judgement.findings:
        about = finding.members or (finding.query,)
        mark = (finding.alertname, finding.query, finding.severity.value)
        if mark[::2] == CRITICAL_STALL and mark in firing and not foreign.issuperset(about):
            return QueryFailure(finding.query, finding.reason)
    for label, verdict in judged.judgement.verdicts.items():
        is_critical = verdict.severity is Severity.CRITICAL
        if is_critical and _is_elsewhere(verdict, State.STALLED, label, foreign):
            return QueryFailure(label, verdict.reason)
    return None


def _is_elsewhere(verdict: Verdict, state: State, label: str, foreign: Collection[str]) -> bool:
    """Whether another process reports this of a query that this one waits for."""
    return label not in foreign and verdict.state is state and verdict.reported_elsewhere


def _foreign(snapshot: Snapshot) -> frozenset[str]:
    """The labels of queries that belong to other processes on the same JVM, or did at their end.

    What this process expects is its own business wherever it runs.
    """
    is_own, expected = snapshot.ownership.is_own, snapshot.expected
    return frozenset(
        label
        for label, query in snapshot.labels().items()
        if query.name not in expected and (query.reported_elsewhere or not is_own(query.session))
    )


def _counts(verdict: Verdict) -> bool:
    """Whether it matters to who waits: also where another process reports it."""
    return verdict.reported_elsewhere or not verdict.ignored


def wait_in_spark(streams: Any, timeout: float | None) -> None:
    """Wait as ``StreamingQueryManager.awaitAnyTermination`` does, for where nothing is watched.

    Raises:
        QueryFailure: a query of the session failed.

    """
    from pyspark.errors import StreamingQueryException

    try:
        streams.awaitAnyTermination(*(() if timeout is None else (timeout,)))
    except StreamingQueryException as error:
        raise QueryFailure("*", redact(str(error))) from error


def nothing_left(snapshot: Snapshot, judgement: Judgement) -> bool:
    """Whether no query is left that could fail: all completed, or the application stopped."""
    if snapshot.context.is_on_purpose:
        return True
    foreign, verdicts = _foreign(snapshot), judgement.verdicts.items()
    states = [one.state for label, one in verdicts if _counts(one) and label not in foreign]
    return bool(states) and all(state is State.COMPLETED for state in states)
