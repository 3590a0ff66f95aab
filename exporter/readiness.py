"""Whether all is well, for ``/readyz``. Pure."""

from __future__ import annotations

import msgspec

from .board import Board
from .row import Row, rows

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


def readiness(board: Board | None) -> Readiness:
    """Judge every query known or expected and not ignored; without a board nothing is well."""
    if board is None:
        return Readiness(False, (Reason(None, "starting", "nothing has been looked at yet"),))
    sick = (row for row in rows(board) if row.state in UNREADY and not row.verdict.ignored)
    reasons = tuple(_reason(row) for row in sick)
    return Readiness(not reasons, reasons)


def _reason(row: Row) -> Reason:
    return Reason(row.label, row.state, row.verdict.reason)
