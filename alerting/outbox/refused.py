"""How an entry changes when a receiver did not take its message. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from ..alert import Incident
from .entry import DeliveryState, OutboxEntry


def refused(entry: OutboxEntry, before: OutboxEntry, *, may_have_arrived: bool) -> OutboxEntry:
    """The entry after an attempt that began from ``before`` has failed."""
    if may_have_arrived or entry.state is not DeliveryState.UNSURE:
        return entry
    return replace(entry, state=before.state, sent_at=before.sent_at)


def buried(entry: OutboxEntry, before: OutboxEntry) -> OutboxEntry:
    """The entry after its message was refused for good; a changed entry is not dead."""
    if before.earlier_end is not None:
        return replace(entry, state=DeliveryState.NOTHING, earlier_end=None, reuses_key=True)
    now, then = entry.incident, before.incident
    same = (now.revision, entry.is_over) == (then.revision, before.is_over)
    return replace(entry, dead=same and now.members <= then.members)


def leaves_open(sent: Incident, before: OutboxEntry | None) -> bool:
    """Whether this refused message is a resolve, so that the incident stays open there.

    While it is open, the next failure would not notify: so the resolve is always tried again.
    """
    known = (
        before is not None
        and before.state is not DeliveryState.RESOLVED
        and before.earlier_end is None
    )
    return known and sent.ends_at is not None
