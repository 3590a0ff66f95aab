"""The end of ``await_any_failure``."""

from __future__ import annotations

from typing import Any

from ..alerting.evaluate import Judgement
from ..alerting.finding import State
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


def first_failure(judgement: Judgement) -> QueryFailure | None:
    """The first query that is dead or gone, as an exception."""
    for label, verdict in judgement.verdicts.items():
        if verdict.state is State.FAILED and not verdict.ignored:
            return QueryFailure(label, verdict.reason)
    for finding in judgement.findings:
        if finding.alertname in ENDS:
            return QueryFailure(finding.query, finding.reason)
    return None


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
    if snapshot.context is Context.STOPPED_BY_APPLICATION:
        return True
    states = [verdict.state for verdict in judgement.verdicts.values() if not verdict.ignored]
    return bool(states) and all(state is State.COMPLETED for state in states)
