"""Whether all queries are healthy, for ``/readyz``. Pure."""

from __future__ import annotations

import msgspec

from .published_state import PublishedState
from .row import QueryRow, rows

UNREADY = frozenset(
    {"failed", "missing", "stopped_unexpectedly", "stalled", "flapping", "rewound", "starting"}
)
"""States in which a query does not work."""


class Reason(msgspec.Struct, frozen=True):
    """Why it is not ready; ``query`` is None when the monitor itself is not ready."""

    query: str | None
    state: str
    reason: str


class Readiness(msgspec.Struct, frozen=True):
    """``ready``, or the reasons."""

    ready: bool
    reasons: tuple[Reason, ...] = ()


def readiness(published: PublishedState | None) -> Readiness:
    """Check every known or expected query that is not ignored; None is not ready."""
    if published is None:
        return Readiness(False, (Reason(None, "starting", "nothing has been evaluated yet"),))
    unhealthy = (row for row in rows(published) if row.state in UNREADY and not row.health.ignored)
    reasons = tuple(_reason(row) for row in unhealthy)
    return Readiness(not reasons, reasons)


def _reason(row: QueryRow) -> Reason:
    return Reason(row.label, row.state, row.health.reason)
