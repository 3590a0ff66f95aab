"""One incident for one receiver: what the receiver should know, and what it knows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum, IntEnum

import msgspec
from msgspec.structs import replace

from .alert import Incident
from .finding import Severity
from .receivers.receiver import ReceiverCapabilities

# -- entry ------------------------------------------------------------------------------------


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


# -- pending send -----------------------------------------------------------------------------
# What to send of one entry of an outbox, and why.


LATE_SECONDS = 60.0
"""A page that is sent later than this after it was queued says so."""


class SendReason(IntEnum):
    """Why something is sent, the most urgent first."""

    TRIGGER = 0
    RESOLVE = 1
    REPEAT = 2
    """The receiver knows it, but needs repetition."""
    STALE_RESOLVE = 3
    """A resolve of an incident that an earlier process may have left open."""


NO_NEWS = frozenset({SendReason.REPEAT, SendReason.STALE_RESOLVE})
"""Reasons of messages that are not urgent."""


class PendingSend(msgspec.Struct, frozen=True):
    """An incident to send: a trigger if ``ends_at`` is None, else a resolve."""

    incident: Incident
    reason: SendReason


def next_send(
    entry: OutboxEntry, capabilities: ReceiverCapabilities, wall: float
) -> PendingSend | None:
    """What to send of ``entry`` at Unix time ``wall``, if anything."""
    if entry.dead:
        # An attempt before the refused one may have arrived, and nobody else would resolve it.
        may_be_open = entry.is_over and entry.state is DeliveryState.UNSURE
        return PendingSend(entry.incident, SendReason.RESOLVE) if may_be_open else None
    if entry.earlier_end is not None:
        return PendingSend(entry.earlier_end, SendReason.TRIGGER)
    return (
        _wanted_once_over(entry, capabilities, wall)
        if entry.is_over
        else _wanted(entry, capabilities, wall)
    )


def _wanted(
    entry: OutboxEntry, capabilities: ReceiverCapabilities, wall: float
) -> PendingSend | None:
    if entry.incident.muted:
        return None
    if entry.state is not DeliveryState.FIRING or entry.incident.revision > entry.sent_revision:
        return PendingSend(entry.incident, SendReason.TRIGGER)
    return (
        PendingSend(entry.incident, SendReason.REPEAT)
        if _wants_repetition(entry, capabilities, wall)
        else None
    )


def _wanted_once_over(
    entry: OutboxEntry, capabilities: ReceiverCapabilities, wall: float
) -> PendingSend | None:
    if entry.state is DeliveryState.RESOLVED:
        repeated = _wants_repetition(entry, capabilities, wall)
        return PendingSend(entry.incident, SendReason.REPEAT) if repeated else None
    if entry.is_unsent and entry.is_critical and not entry.incident.muted:
        return PendingSend(with_end(entry.incident, None), SendReason.TRIGGER)
    return PendingSend(entry.incident, SendReason.RESOLVE)


def _wants_repetition(entry: OutboxEntry, capabilities: ReceiverCapabilities, wall: float) -> bool:
    """Whether it was sent long ago; a clock that is set back must not prevent it for ever."""
    if capabilities.resend_seconds is None or entry.sent_at is None:
        return False
    return not 0.0 <= wall - entry.sent_at < capabilities.resend_seconds


def delayed(pending: PendingSend, entry: OutboxEntry, wall: float) -> Incident:
    """The incident to send at Unix time ``wall``; a late page says how late it is."""
    late = wall - entry.queued_at
    if pending.reason is not SendReason.TRIGGER or not entry.is_unsent or late <= LATE_SECONDS:
        return pending.incident
    note = {"delivery_delay_seconds": f"{late:.0f}"}
    return replace(
        pending.incident,
        alerts=tuple(
            replace(alert, annotations={**alert.annotations, **note})
            for alert in pending.incident.alerts
        ),
    )


# -- bounded store ----------------------------------------------------------------------------
# The entries of one receiver, limited in number and size.


MAX_ENTRIES = 1000
MAX_BYTES = 8 * 1024 * 1024


class BoundedStore:
    """Entries by key, at most ``max_entries`` of them and ``max_bytes`` as JSON.

    A full store evicts delivered and resolved entries first, then the least severe and oldest. It
    never evicts an unsent critical entry that fires for a less severe, a newer or a rejected one.
    An unsent one that is over gives way: a fallback gets no alert that has no room here.
    ``evicted`` counts the evicted entries, once each. A firing incident is offered again and comes
    back when there is room. A single entry may be larger than ``max_bytes``.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES) -> None:
        self.evicted = 0
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: dict[str, OutboxEntry] = {}
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._outside: set[str] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[OutboxEntry]:
        return iter(tuple(self._entries.values()))

    def get(self, key: str) -> OutboxEntry | None:
        """The entry with this key, or None."""
        return self._entries.get(key)

    def put(self, entry: OutboxEntry, *, keep: str | None = None) -> None:
        """Add or replace an entry and make room; the entry with the key ``keep`` always stays."""
        key = entry.incident.key
        before = self._entries.get(key)
        if before is None or before.incident is not entry.incident:
            self._bytes -= self._sizes.get(key, 0)
            self._sizes[key] = len(msgspec.json.encode(entry))
            self._bytes += self._sizes[key]
        self._entries[key] = entry
        while self._is_full() and self._evict_one(keep):
            pass
        if key in self._entries:
            self._outside.discard(key)

    def drop(self, key: str) -> None:
        """Remove an entry."""
        if self._entries.pop(key, None) is not None:
            self._bytes -= self._sizes.pop(key)

    def forget_outsiders(self, wanted: Collection[str]) -> None:
        """Forget all evicted keys except those in ``wanted``."""
        self._outside.intersection_update(wanted)

    def _is_full(self) -> bool:
        return len(self._entries) > self._max_entries or self._bytes > self._max_bytes

    def _evict_one(self, keep: str | None) -> bool:
        candidates = [key for key in self._entries if key != keep]
        if len(self._entries) <= 1 or not candidates:
            return False
        key = min(candidates, key=self._worth)
        entry = self._entries[key]
        self.drop(key)
        if not _is_done(entry):
            self.evicted += key not in self._outside
            self._outside.add(key)
        return True

    def _worth(self, key: str) -> tuple[int, bool, float]:
        """Sort key: the smallest is evicted first, an entry that was evicted before others.

        Otherwise the entries of a set that is one too large would evict each other for ever.
        """
        entry = self._entries[key]
        if _is_done(entry):
            return 0, False, entry.queued_at
        if not entry.is_critical:
            return 1, key not in self._outside, entry.queued_at
        if entry.is_unsent and entry.is_over:
            return 2, key not in self._outside, entry.queued_at
        if entry.is_unsent and not entry.dead:
            return 4, key not in self._outside, -entry.queued_at
        return 3, key not in self._outside, entry.queued_at


def _is_done(entry: OutboxEntry) -> bool:
    """Whether there is nothing left to send."""
    return entry.is_over and (entry.state is DeliveryState.RESOLVED or entry.dead)
