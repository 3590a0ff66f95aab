"""What befalls query 8."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from .pipelines.pipeline import ALERTS, Pipeline

NONE = "healthy"


class Scenario(msgspec.Struct, frozen=True):
    """One way to go wrong: what strikes, what must be told, and how soon (seconds)."""

    name: str
    event: str
    alertname: str | None
    reported: str
    within_seconds: float
    ends_supervised: bool
    """Whether ``await_any_failure`` ends the job for it; who hangs has not failed."""
    strike: Callable[[Pipeline], float]
    """Brings it about; returns the Unix time at which it had happened."""


def _dies(pipeline: Pipeline) -> float:
    """A second writer commits to the table that alert_resolution merges into, until it dies."""
    return pipeline.conflict()


def _hangs(pipeline: Pipeline) -> float:
    """Another writer takes the table's lock and never gives it back."""
    pipeline.lock.take()
    return time.time()


def _stops(pipeline: Pipeline) -> float:
    """Somebody stops the query, and nobody starts it again."""
    pipeline.stop_query(ALERTS)
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
            _dies,
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
        Scenario(NONE, "nothing", None, "nothing happens", 0.0, False, _nothing),
    )
}
