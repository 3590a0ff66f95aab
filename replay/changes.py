"""The results of a replay: alerts that open and resolve, and counts of what was read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

import msgspec


class Change(msgspec.Struct, frozen=True):
    """One alert opened or resolved; ``at`` is ISO 8601 in UTC, to the millisecond."""

    at: str
    status: str
    alertname: str
    query: str
    severity: str
    reason: str
    app: str


class Stall(msgspec.Struct, frozen=True):
    """A query that was running and sent no event for ``seconds``."""

    query: str
    seconds: float


def longest(stalls: Iterable[Stall | None]) -> Stall | None:
    """The longest stall; None if there is none."""
    return max((stall for stall in stalls if stall), key=lambda stall: stall.seconds, default=None)


class Replayed(msgspec.Struct, frozen=True):
    """One evaluated application; times in Unix seconds, None if the log has none.

    ``error`` says why the log could not be read to its end.
    """

    app: str
    path: str
    events: int
    unread: int
    began_at: float | None
    ended_at: float | None
    opened: int
    longest_stall: Stall | None
    error: str | None


def iso(seconds: float) -> str:
    """Unix seconds as Spark writes times: ``2026-11-21T10:36:51.898Z``."""
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
