"""The scenarios: what goes wrong with query 8, or with the first one."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from .pipeline import ALERTS, BRONZE, Pipeline

NONE = "healthy"


class Scenario(msgspec.Struct, frozen=True):
    """One way to go wrong: its trigger, the expected alert, and how soon it must fire (seconds)."""

    name: str
    event: str
    alertname: str | None
    description: str
    within_seconds: float
    ends_supervised: bool
    """Whether it ends ``await_any_failure``; a query that hangs has not failed."""
    strike: Callable[[Pipeline], float]
    """Triggers the scenario; returns the Unix time at which it happened."""
    query: str = ALERTS
    """What goes wrong."""

    @property
    def waits_for(self) -> str:
        """The query that the job's main thread waits for: one that does not end by itself."""
        return ALERTS if self.query == BRONZE else BRONZE


def _fails(pipeline: Pipeline) -> float:
    """A second writer commits to alert_resolution's table until that query fails."""
    return pipeline.conflict()


def _hangs(pipeline: Pipeline) -> float:
    """Another writer takes the table's lock and never releases it."""
    pipeline.lock.take()
    return time.time()


def _stops(pipeline: Pipeline) -> float:
    """Somebody stops the query and does not start it again."""
    pipeline.stop_query(ALERTS)
    return time.time()


def _starves(pipeline: Pipeline) -> float:
    """Bronze can no longer write its checkpoint; seven queries read what it writes."""
    pipeline.block_commits(BRONZE)
    return time.time()


def _nothing(_pipeline: Pipeline) -> float:
    return time.time()


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "failure",
            "death",
            "StreamingQueryFailed",
            "a second writer commits to the table that alert_resolution is merging into",
            30.0,
            True,
            _fails,
        ),
        Scenario(
            "hang",
            "hang",
            "StreamingQueryStalled",
            "a second writer takes the lock of alert_resolution's table and keeps it",
            120.0,
            False,
            _hangs,
        ),
        Scenario(
            "stop",
            "stop",
            "StreamingQueryStopped",
            "somebody calls stop() on alert_resolution",
            60.0,
            True,
            _stops,
        ),
        Scenario(
            "upstream",
            "failure",
            "StreamingQueryFailed",
            "bronze can no longer write its checkpoint; the others read what bronze writes",
            60.0,
            True,
            _starves,
            BRONZE,
        ),
        Scenario(NONE, "nothing", None, "nothing happens", 0.0, False, _nothing),
    )
}
