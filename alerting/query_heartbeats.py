"""A dead man's switch for each query, pinged when the query commits or completes."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

from ..core.deadline import Deadline
from ..core.outcomes import DeliveryOutcome
from ..listener.query import Query
from .lifecycle.health import NOT_WORKING
from .receivers.heartbeat import Heartbeat
from .receivers.heartbeat_ping import Ping

if TYPE_CHECKING:
    # The command line works without PySpark, which the worker needs.
    from .evaluated import Evaluated


Mark = tuple[int, int]
"""How many commits a query has made, and how many of its runs have completed."""


class _Owed(msgspec.Struct, frozen=True):
    """A ping that is due; ``delivered`` is the count of delivered pings when it became due."""

    ping: Ping
    delivered: int


class QueryHeartbeats:
    """One heartbeat for each name pattern that has a URL; a query's last matching pattern counts.

    It is pinged when one of its queries has committed or completed, unless one of them has
    failed, is missing or stalled. Used by the worker; separate threads send the pings.
    """

    def __init__(self, heartbeats: Mapping[str, Heartbeat]) -> None:
        self._heartbeats = heartbeats
        self._marks: dict[str, Mark] = {}
        self._owed: dict[str, _Owed] = {}

    @property
    def outcomes(self) -> dict[str, Mapping[str, int]]:
        """Counts of pings by outcome, by the name of the heartbeat."""
        return {one.name: one.outcomes for one in self._heartbeats.values()}

    def start(self) -> None:
        """Start the threads; no ping is sent yet."""
        for one in self._heartbeats.values():
            one.start()

    def update(self, evaluated: Evaluated) -> None:
        """Ping for progress since the last call; never waits."""
        if not self._heartbeats:
            return
        health = evaluated.evaluation.health
        own = {
            label: query
            for label, query in evaluated.snapshot.labels().items()
            if label in health and not health[label].reported_elsewhere
        }
        unhealthy = {
            self._pattern(query)
            for label, query in own.items()
            if health[label].state in NOT_WORKING
        }
        for label, query in own.items():
            pattern = self._pattern(query)
            if pattern and self._has_done_more(label, query):
                self._owe(pattern, label, query)
        self._marks = {label: mark for label, mark in self._marks.items() if label in own}
        for pattern in list(self._owed):
            self._pay(pattern, may_ping=pattern not in unhealthy)

    def close(self, deadline: Deadline) -> None:
        """Stop, after one more attempt at each ping that is due."""
        for pattern, one in self._heartbeats.items():
            one.stop(self._owed[pattern].ping if self._is_owed(pattern) else None)
        for one in self._heartbeats.values():
            one.close(deadline.left)

    def _pattern(self, query: Query) -> str:
        found = [one for one in self._heartbeats if fnmatchcase(query.base_name, one)]
        return found[-1] if found else ""

    def _has_done_more(self, label: str, query: Query) -> bool:
        mark = (query.totals.commits, query.totals.completed)
        before = self._marks.get(label, (0, 0))
        self._marks[label] = mark
        return mark[0] > before[0] or mark[1] > before[1]

    def _owe(self, pattern: str, label: str, query: Query) -> None:
        done = "completed" if not query.alive else f"batch {query.last_commit_batch} committed"
        delivered = self._heartbeats[pattern].outcomes[DeliveryOutcome.DELIVERED.value]
        self._owed[pattern] = _Owed(Ping("", f"{label}: {done}"), delivered)

    def _pay(self, pattern: str, *, may_ping: bool) -> None:
        if not may_ping or not self._is_owed(pattern):
            del self._owed[pattern]
        else:
            self._heartbeats[pattern].offer(self._owed[pattern].ping)

    def _is_owed(self, pattern: str) -> bool:
        owed, outcomes = self._owed.get(pattern), self._heartbeats[pattern].outcomes
        return owed is not None and outcomes[DeliveryOutcome.DELIVERED.value] <= owed.delivered
