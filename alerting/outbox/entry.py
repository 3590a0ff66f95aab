"""One incident in one receiver's account: what it should know, and what it knows. Pure."""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec.structs import replace

from ..alert import Incident
from ..finding import Severity
from ..receivers.receiver import ReceiverCapabilities

FORGOTTEN_AFTER_SECONDS = 24 * 3600.0
"""How long something that is over is still worth telling."""


class DeliveryState(str, Enum):
    """What the receiver knows of an incident."""

    NOTHING = "nothing"
    UNSURE = "unsure"
    """An attempt, to trigger or to resolve, may have arrived or not."""
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
    """One incident as one receiver should know it, and what it was told; times in Unix seconds.

    ``incident`` is over when its ``ends_at`` is set. ``sent_revision`` is the newest revision
    surely told. ``sent_at`` is when something was last surely told; None while it is not sure
    that this occurrence was told at all. ``dead``: the receiver will not take this message;
    it is not sent again before its revision grows, one more query joins it, or it ends.
    ``earlier_end`` is an earlier occurrence with its end, which is sent first:
    while that is open at the receiver, this one would notify nobody. ``reuses_key``: it refused
    that end. This one is sent all the same, and counts as not notified until an end is taken.
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
        """Whether it fires no more."""
        return self.incident.ends_at is not None

    @property
    def is_critical(self) -> bool:
        """Whether it is worth waking somebody."""
        return self.incident.severity == Severity.CRITICAL.value

    @property
    def is_unsent(self) -> bool:
        """Whether it is not sure that anybody ever heard of it."""
        return self.state is DeliveryState.NOTHING or (
            self.state is DeliveryState.UNSURE and self.sent_at is None
        )

    @property
    def is_unnotified(self) -> bool:
        """Whether it is not sure that anybody was notified of it, whatever the receiver took."""
        return self.is_unsent or self.reuses_key


def queued(incident: Incident, wall: float, earlier_end: Incident | None = None) -> OutboxEntry:
    """A row of something nobody was told of yet."""
    state = DeliveryState.NOTHING if earlier_end is None else DeliveryState.UNSURE
    return OutboxEntry(incident, state, 0, None, wall, dead=False, earlier_end=earlier_end)


def is_obsolete(entry: OutboxEntry) -> bool:
    """Whether it came and went unheard, and is not worth telling any more."""
    unreported = entry.is_over and entry.state is DeliveryState.NOTHING
    return unreported and (not entry.is_critical or bool(entry.incident.muted))


def is_settled(entry: OutboxEntry, capabilities: ReceiverCapabilities, wall: float) -> bool:
    """Whether it is over and the receiver knows, or never will.

    A critical one that the receiver would not take stays, for a fallback to see.
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
    """Whether it is over for so long that telling it makes no sense."""
    ends_at = entry.incident.ends_at
    return ends_at is not None and wall > max(ends_at, entry.queued_at) + FORGOTTEN_AFTER_SECONDS


def offered(entry: OutboxEntry, incident: Incident, wall: float) -> OutboxEntry:
    """The row when its incident is now ``incident``."""
    came_back = entry.is_over and incident.ends_at is None
    unmuted = bool(entry.incident.muted) and not incident.muted and entry.is_unsent
    ended = not entry.is_over and incident.ends_at is not None
    grown = incident.revision > entry.incident.revision
    joined = bool(incident.members - entry.incident.members)
    if came_back:
        # This occurrence was told to nobody, and perhaps the end of the last one neither.
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
    """The row when its incident fires no more at Unix time ``wall``."""
    if entry.is_over:
        return entry
    end = max(wall, *(alert.starts_at for alert in entry.incident.alerts))
    return offered(entry, with_end(entry.incident, end), wall)


def begun(entry: OutboxEntry, sent: Incident) -> OutboxEntry:
    """The row while ``sent`` is under way: from now on it may have arrived.

    So a successor of a driver that is killed in this moment does not take it for untold.
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
    """The row after the receiver took ``sent`` at Unix time ``wall``."""
    if sent.ends_at is not None:
        entry = replace(entry, reuses_key=False)
    if entry.earlier_end is not None and sent.ends_at is not None:
        return replace(entry, state=DeliveryState.NOTHING, sent_at=None, earlier_end=None)
    revision = min(sent.revision, entry.incident.revision)
    if sent.ends_at is None:
        return replace(entry, state=DeliveryState.FIRING, sent_revision=revision, sent_at=wall)
    if entry.is_over:
        return replace(entry, state=DeliveryState.RESOLVED, sent_revision=revision, sent_at=wall)
    return replace(entry, state=DeliveryState.NOTHING, sent_at=None)


def with_end(incident: Incident, end: float | None) -> Incident:
    """The incident with every alert firing (None), or with those that fire ending at ``end``."""
    return replace(
        incident,
        alerts=tuple(
            replace(alert, ends_at=end if end is None or alert.ends_at is None else alert.ends_at)
            for alert in incident.alerts
        ),
    )
