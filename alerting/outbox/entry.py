"""One incident for one receiver: what the receiver should know, and what it knows. Pure."""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec.structs import replace

from ..alert import Incident
from ..finding import Severity
from ..receivers.receiver import ReceiverCapabilities

Essence = tuple[object, ...]

FORGOTTEN_AFTER_SECONDS = 24 * 3600.0
"""How long a resolved incident is still worth sending."""


class DeliveryState(str, Enum):
    """What the receiver knows of an incident."""

    NOTHING = "nothing"
    UNSURE = "unsure"
    """A trigger or a resolve may have arrived, or not."""
    FIRING = "firing"
    RESOLVED = "resolved"


# The names in a spool's file, of version 1.
STORED = {
    "state": "told",
    "sent_revision": "told_revision",
    "sent_at": "told_at",
    "earlier_end": "unended",
}


class OutboxEntry(msgspec.Struct, frozen=True, rename=STORED):
    """One incident as one receiver should know it, and what was sent; times in Unix seconds.

    ``incident`` has ended when its ``ends_at`` is set. ``sent_revision`` is the newest revision
    that was accepted. ``sent_at`` is when a message was last accepted; None while it is not sure
    that any message of this occurrence was. ``dead``: the receiver refuses this message for good;
    it is not sent again before its revision grows, another query joins, or the incident ends.
    ``earlier_end`` is an earlier occurrence with its end, which is sent first: while that is open
    at the receiver, this one would not notify. ``reuses_key``: the receiver refused that end. This
    one is sent anyway, and counts as not notified until an end is accepted.
    """

    incident: Incident
    state: DeliveryState
    sent_revision: int
    sent_at: float | None
    queued_at: float
    dead: bool
    earlier_end: Incident | None = None
    reuses_key: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the incident has ended."""
        return self.incident.ends_at is not None

    @property
    def is_critical(self) -> bool:
        """Whether the incident is critical."""
        return self.incident.severity == Severity.CRITICAL.value

    @property
    def is_unsent(self) -> bool:
        """Whether it is not sure that the receiver ever got it."""
        return self.state is DeliveryState.NOTHING or (
            self.state is DeliveryState.UNSURE and self.sent_at is None
        )

    @property
    def is_unnotified(self) -> bool:
        """Whether it may not have notified anyone, even if the receiver accepted it."""
        return self.is_unsent or self.reuses_key


def queued(incident: Incident, wall: float, earlier_end: Incident | None = None) -> OutboxEntry:
    """The entry of an incident that has not been sent yet."""
    state = DeliveryState.NOTHING if earlier_end is None else DeliveryState.UNSURE
    return OutboxEntry(incident, state, 0, None, wall, dead=False, earlier_end=earlier_end)


def is_obsolete(entry: OutboxEntry) -> bool:
    """Whether it ended before it was sent, and is not worth sending any more."""
    never_sent = entry.is_over and entry.state is DeliveryState.NOTHING
    return never_sent and (not entry.is_critical or bool(entry.incident.muted))


def is_settled(entry: OutboxEntry, capabilities: ReceiverCapabilities, wall: float) -> bool:
    """Whether it has ended and the receiver knows that, or never will.

    A critical one that the receiver refused is kept for a fallback.
    """
    ends_at = entry.incident.ends_at
    if ends_at is None:
        return False
    if entry.dead:
        return not (entry.is_critical and entry.is_unsent)
    return (
        entry.state is DeliveryState.RESOLVED
        and wall >= ends_at + capabilities.resend_resolved_seconds
    )


def is_expired(entry: OutboxEntry, wall: float) -> bool:
    """Whether it ended so long ago that it is not worth sending."""
    ends_at = entry.incident.ends_at
    return ends_at is not None and wall > max(ends_at, entry.queued_at) + FORGOTTEN_AFTER_SECONDS


def offered(entry: OutboxEntry, incident: Incident, wall: float) -> OutboxEntry:
    """The entry with the newest state of its incident."""
    came_back = entry.is_over and incident.ends_at is None
    unmuted = bool(entry.incident.muted) and not incident.muted and entry.is_unsent
    ended = not entry.is_over and incident.ends_at is not None
    grown = incident.revision > entry.incident.revision
    joined = bool(incident.members - entry.incident.members)
    if came_back:
        # This occurrence was not sent yet, and perhaps the end of the last one was not either.
        known = entry.state in (DeliveryState.FIRING, DeliveryState.UNSURE)
        state = DeliveryState.UNSURE if known else DeliveryState.NOTHING
        earlier_end = (entry.earlier_end or entry.incident) if known else None
        entry = replace(entry, state=state, sent_at=None, queued_at=wall, earlier_end=earlier_end)
    return replace(
        entry,
        incident=incident,
        sent_revision=min(entry.sent_revision, incident.revision),
        queued_at=wall if unmuted else entry.queued_at,
        dead=entry.dead and not (came_back or ended or grown or joined),
    )


def ended(entry: OutboxEntry, wall: float) -> OutboxEntry:
    """The entry whose incident ends at Unix time ``wall``."""
    if entry.is_over:
        return entry
    end = max(wall, *(alert.starts_at for alert in entry.incident.alerts))
    return offered(entry, with_end(entry.incident, end), wall)


def begun(entry: OutboxEntry, sent: Incident) -> OutboxEntry:
    """The entry while ``sent`` is in flight: from now on it may have arrived.

    If the driver is killed now, its successor does not treat the message as unsent.
    """
    if entry.earlier_end is not None:
        return entry
    if sent.ends_at is None:
        known = entry.state is DeliveryState.FIRING
        return entry if known else replace(entry, state=DeliveryState.UNSURE, sent_at=None)
    return (
        entry
        if entry.state is DeliveryState.RESOLVED
        else replace(entry, state=DeliveryState.UNSURE)
    )


def accepted(entry: OutboxEntry, sent: Incident, wall: float) -> OutboxEntry:
    """The entry after the receiver accepted ``sent`` at Unix time ``wall``."""
    if sent.ends_at is not None:
        entry = replace(entry, reuses_key=False)
    if entry.earlier_end is not None and sent.ends_at is not None:
        return replace(entry, state=DeliveryState.NOTHING, sent_at=None, earlier_end=None)
    revision = min(sent.revision, entry.incident.revision)
    if sent.ends_at is None:
        return replace(entry, state=DeliveryState.FIRING, sent_revision=revision, sent_at=wall)
    if entry.is_over and not entry.dead:
        return replace(entry, state=DeliveryState.RESOLVED, sent_revision=revision, sent_at=wall)
    return replace(entry, state=DeliveryState.NOTHING, sent_at=None)


def with_end(incident: Incident, end: float | None) -> Incident:
    """The incident with all alerts firing (``end`` None), or with firing ones ending at ``end``."""
    return replace(
        incident,
        alerts=tuple(
            replace(alert, ends_at=end if end is None or alert.ends_at is None else alert.ends_at)
            for alert in incident.alerts
        ),
    )


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


def essence(entry: OutboxEntry) -> Essence:
    """The parts of an entry that are worth a write: not its texts, which change with every poll."""
    incident = entry.incident
    alerts = tuple((alert.key, alert.starts_at, alert.ends_at) for alert in incident.alerts)
    sent = (entry.state, entry.sent_revision, entry.sent_at, entry.queued_at)
    knowledge = (*sent, entry.dead, entry.reuses_key)
    earlier_end = entry.earlier_end is not None
    return (alerts, incident.revision, incident.muted, incident.severity, earlier_end, *knowledge)
