"""The end of ``await_any_failure``."""

from __future__ import annotations

from typing import Any

from ..alerting.evaluate import Judgement, Verdict
from ..alerting.finding import WHOLE_DRIVER, State
from ..alerting.rules import driver_gone, query_gone
from ..listener.probing import Context
from ..listener.redaction import redact
from ..listener.snapshot import Snapshot

ENDS = (query_gone.NAME, driver_gone.NAME)
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
    if snapshot.context is Context.JVM_GONE:
        return QueryFailure(WHOLE_DRIVER, driver_gone.ENDED)
    return None


def _foreign(snapshot: Snapshot) -> frozenset[str]:
    """The labels of queries that belong to other processes on the same JVM, or did at their end."""
    is_own = snapshot.ownership.is_own
    labels = snapshot.labels().items()
    return frozenset(
        label for label, query in labels if query.reported_elsewhere or not is_own(query.session)
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
