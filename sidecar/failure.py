"""The end of ``await_any_failure``."""

from __future__ import annotations

from ..alerting.evaluate import Judgement
from ..alerting.finding import State
from ..alerting.rules import query_gone
from ..listener.probing import Context
from ..listener.snapshot import Snapshot


class QueryFailure(Exception):  # noqa: N818 - named in the public contract
    """A streaming query failed or vanished."""

    def __init__(self, query: str, reason: str) -> None:
        super().__init__(f"streaming query {query}: {reason}")
        self.query = query
        self.reason = reason


def first_failure(judgement: Judgement) -> QueryFailure | None:
    """The first query that is dead or gone, as an exception."""
    for label, verdict in judgement.verdicts.items():
        if verdict.state is State.FAILED and not verdict.ignored:
            return QueryFailure(label, verdict.reason)
    for finding in judgement.findings:
        if finding.alertname == query_gone.NAME:
            return QueryFailure(finding.query, finding.reason)
    return None


def nothing_left(snapshot: Snapshot, judgement: Judgement) -> bool:
    """Whether no query is left that could fail: all completed, or the application stopped."""
    if snapshot.context is Context.STOPPED_BY_APPLICATION:
        return True
    states = [verdict.state for verdict in judgement.verdicts.values() if not verdict.ignored]
    return bool(states) and all(state is State.COMPLETED for state in states)
