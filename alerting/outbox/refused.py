"""What becomes of a row when a receiver did not take its message. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from ..alert import Incident
from .entry import DeliveryState, OutboxEntry


def refused(entry: OutboxEntry, before: OutboxEntry, *, may_have_arrived: bool) -> OutboxEntry:
    """The row after an attempt failed that was begun from ``before``."""
    if may_have_arrived or entry.state is not DeliveryState.UNSURE:
        return entry
    return replace(entry, state=before.state, sent_at=before.sent_at)


def buried(entry: OutboxEntry, before: OutboxEntry) -> OutboxEntry:
    """The row after its message was refused for good, unless it has another by now."""
    if before.earlier_end is not None:
        return replace(entry, state=DeliveryState.NOTHING, earlier_end=None, reuses_key=True)
    now, then = entry.incident, before.incident
    same = (now.revision, entry.is_over) == (then.revision, before.is_over)
    return replace(entry, dead=same and now.members <= then.members)


def leaves_open(sent: Incident, before: OutboxEntry | None) -> bool:
    """Whether what was sent is a resolve without which the incident stays open there.

    While it is open, the next failure would notify nobody: so it is tried again, however refused.
    """
    known = (
        before is not None
        and before.state is not DeliveryState.RESOLVED
        and before.earlier_end is None
    )
    return known and sent.ends_at is not None
