"""What becomes of a row when a receiver did not take its message. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from ..alert import Incident
from .row import Row, Told


def refused(row: Row, before: Row, *, may_have_arrived: bool) -> Row:
    """The row after an attempt failed that was begun from ``before``."""
    if may_have_arrived or row.told is not Told.UNSURE:
        return row
    return replace(row, told=before.told, told_at=before.told_at)


def buried(row: Row, before: Row) -> Row:
    """The row after its message was refused for good, unless it has another by now."""
    if before.unended is not None:
        return replace(row, told=Told.NOTHING, unended=None, reuses_key=True)
    now, then = row.incident, before.incident
    same = (now.revision, row.is_over) == (then.revision, before.is_over)
    return replace(row, dead=same and now.members <= then.members)


def leaves_open(sent: Incident, before: Row | None) -> bool:
    """Whether what was sent is a resolve without which the incident stays open there.

    While it is open, the next failure would notify nobody: so it is tried again, however refused.
    """
    known = before is not None and before.told is not Told.RESOLVED and before.unended is None
    return known and sent.ends_at is not None
