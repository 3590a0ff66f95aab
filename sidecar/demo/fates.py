"""What befalls query 8."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from .pipeline import ALERTS, Pipeline

NONE = "healthy"


class Fate(msgspec.Struct, frozen=True):
    """One way to go wrong: what strikes, what must be told, and how soon (seconds)."""

    name: str
    event: str
    alertname: str | None
    told: str
    within_seconds: float
    strike: Callable[[Pipeline], float]
    """Brings it about; returns the Unix time at which it had happened."""


def _dies(pipeline: Pipeline) -> float:
    """A second writer commits the version that alert_resolution is about to write."""
    table = pipeline.table
    struck: list[float] = []

    def compaction() -> None:
        if not struck:
            version, rows = table.read()
            table.commit(version + 1, rows)
            struck.append(time.time())

    table.rival = compaction
    return _wait_until(lambda: struck[0] if struck else None)


def _hangs(pipeline: Pipeline) -> float:
    """Another writer takes the table's lock and never gives it back."""
    pipeline.table.lock()
    return time.time()


def _stops(pipeline: Pipeline) -> float:
    """Somebody stops the query, and nobody starts it again."""
    pipeline.stop_query(ALERTS)
    return time.time()


def _nothing(_pipeline: Pipeline) -> float:
    return time.time()


def _wait_until(answer: Callable[[], float | None], timeout: float = 60.0) -> float:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = answer()
        if found is not None:
            return found
        time.sleep(0.01)
    raise TimeoutError("the demo's second writer found nobody to conflict with")


FATES = {
    fate.name: fate
    for fate in (
        Fate(
            "dies",
            "death",
            "QueryFailed",
            "a second writer commits to the table that alert_resolution is merging into",
            30.0,
            _dies,
        ),
        Fate(
            "hangs",
            "hang",
            "CommitStalled",
            "a second writer takes the lock of alert_resolution's table and keeps it",
            120.0,
            _hangs,
        ),
        Fate(
            "stops",
            "stop",
            "QueryGone",
            "somebody calls stop() on alert_resolution",
            60.0,
            _stops,
        ),
        Fate(NONE, "nothing", None, "nothing happens", 0.0, _nothing),
    )
}
