"""Whether all is well, for ``/readyz``. Pure."""

from __future__ import annotations

import msgspec

from .published_state import PublishedState
from .row import QueryRow, rows

UNREADY = frozenset(
    {"failed", "missing", "stopped_unexpectedly", "stalled", "flapping", "rewound", "starting"}
)
"""States in which a query does not do its work."""


class Reason(msgspec.Struct, frozen=True):
    """Why it is not; ``query`` is None when it is the monitor that is not ready."""

    query: str | None
    state: str
    reason: str


class Readiness(msgspec.Struct, frozen=True):
    """``ready``, or the reasons why not."""

    ready: bool
    reasons: tuple[Reason, ...] = ()


def readiness(board: PublishedState | None) -> Readiness:
    """Judge every query known or expected and not ignored; without a board nothing is well."""
    if board is None:
        return Readiness(False, (Reason(None, "starting", "nothing has been looked at yet"),))
    unhealthy = (row for row in rows(board) if row.state in UNREADY and not row.health.ignored)
    reasons = tuple(_reason(row) for row in unhealthy)
    return Readiness(not reasons, reasons)


def _reason(row: QueryRow) -> Reason:
    return Reason(row.label, row.state, row.health.reason)
