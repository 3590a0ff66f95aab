"""One receiver's account: what it should know, what it knows, and what to send next. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..alert import Incident
from ..receivers.answer import DeliveryOutcome
from ..receivers.receiver import DeliveryError, ReceiverCapabilities
from .bounded_store import MAX_BYTES, MAX_ENTRIES, BoundedStore
from .entry import (
    DeliveryState,
    OutboxEntry,
    accepted,
    begun,
    ended,
    is_expired,
    is_obsolete,
    is_settled,
    offered,
    queued,
)
from .pending_send import NO_NEWS, PendingSend, SendReason, delayed, next_send
from .refused import buried, leaves_open, refused
from .send_schedule import SendSchedule
from .stale_resolves import StaleResolves

LOSSES = ("evicted", "expired", "obsolete", "rejected")
"""Why: no room; over for a day; a warning that came and went; a message that was refused."""


class Outbox:
    """Compares the incidents offered with what one receiver was told, and sends the difference.

    So a lost hand-off heals, nothing is dropped while it fires, and a resolve never comes
    before its trigger: there is one row for each incident, and one of them is under way at a
    time, from ``begin`` to ``delivered`` or ``failed``. ``now`` is monotonic, ``wall`` Unix time.
    """

    def __init__(
        self,
        capabilities: ReceiverCapabilities | None = None,
        *,
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._capabilities = capabilities if capabilities is not None else ReceiverCapabilities()
        self._schedule = SendSchedule(self._capabilities.per_minute)
        self._store = BoundedStore(max_entries, max_bytes)
        self._begun: OutboxEntry | None = None
        self._reconciles = self._capabilities.reconciles
        self.stale_resolves = StaleResolves(asks=self._capabilities.can_be_asked)
        self._losses: Counter[str] = Counter(dict.fromkeys(LOSSES, 0))

    @property
    def entries(self) -> tuple[OutboxEntry, ...]:
        """All rows, as they are to survive the process."""
        return tuple(self._store)

    @property
    def losses(self) -> Counter[str]:
        """How many were not told, by why."""
        return Counter({**self._losses, "evicted": self._store.evicted})

    @property
    def circuit_open(self) -> bool:
        """Whether the receiver counts as down."""
        return self._schedule.is_open

    def restore(self, entries: Iterable[OutboxEntry], wall: float) -> None:
        """Take over what an earlier driver's outbox held; what is known since then goes first.

        What is open is known then, and nothing else is resolved.
        """
        self._reconciles = False
        self.stale_resolves.offer(())
        for entry in entries:
            mine = self._store.get(entry.incident.key)
            if mine is None:
                self._put(entry)
            elif mine.state is DeliveryState.NOTHING:
                self._put(offered(entry, mine.incident, wall))
        self._tidy(wall)

    def offer(
        self, incidents: Iterable[Incident], wall: float, stale: Iterable[Incident] | None = None
    ) -> None:
        """Replace the set of incidents that are open at Unix time ``wall``.

        One that ended may be offered once more, with its end, or be left out. ``stale``: what an
        earlier process may have left open; None: as before.
        """
        newest = {incident.key: incident for incident in incidents}
        self._store.forget_outsiders(newest)
        for entry in self._store:
            if entry.incident.key not in newest:
                self._put(ended(entry, wall))
        self.add(newest.values(), wall)
        if self._reconciles:
            entries = (entry.incident.key for entry in self._store)
            self.stale_resolves.offer(stale, held={*newest, *entries})
        self._tidy(wall)

    def add(self, incidents: Iterable[Incident], wall: float) -> None:
        """Let these be known too."""
        for incident in incidents:
            entry = self._store.get(incident.key)
            if entry is not None:
                if entry.is_over and incident.ends_at is None:
                    self._schedule.renew(incident.key)
                self._put(offered(entry, incident, wall))
                continue
            entry = queued(incident, wall, self.stale_resolves.claim(incident.key))
            if entry.is_over and not entry.is_critical:
                continue
            self._put(entry)
        self._tidy(wall)

    def holds(self, key: str) -> bool:
        """Whether the receiver is to be told how that incident goes on."""
        entry = self._store.get(key)
        return entry is not None and entry.state is not DeliveryState.RESOLVED

    def pending(self, wall: float) -> int:
        """How many differences the receiver has not been told yet."""
        return len(self._differences(wall))

    def overdue(self, wall: float, after_seconds: float) -> tuple[Incident, ...]:
        """What nobody has surely heard of by this way for so long, or never will as it is."""
        return tuple(
            entry.incident
            for entry in self._store
            if entry.is_unnotified
            and not entry.incident.muted
            and (entry.dead or wall - entry.queued_at >= after_seconds)
        )

    def begin(self, now: float, wall: float, urgent_round: int = 0) -> Incident | None:
        """What to send now, the most urgent first; None when there is nothing, or not yet.

        In a flush (``urgent_round`` above 0) that is anything not yet attempted in it.
        """
        self._tidy(wall)
        pending = self._schedule.choose(self._wants(wall), now, urgent_round)
        if pending is None:
            return None
        self._schedule.sent(pending, now)
        self._begun = entry = self._store.get(pending.incident.key)
        if entry is None:
            return pending.incident
        sent = delayed(pending, entry, wall)
        self._put(begun(entry, pending.incident))
        return sent

    def next_at(self, now: float, wall: float) -> float | None:
        """When ``begin`` may find something, None if there is nothing to send."""
        return self._schedule.next_at(self._wants(wall), now)

    def question(self, now: float, wall: float) -> tuple[Incident, ...]:
        """Of what the receiver is to be asked now whether it is open there."""
        ask_at = self.ask_at(wall)
        return self.stale_resolves.unasked if ask_at is not None and ask_at <= now else ()

    def ask_at(self, wall: float) -> float | None:
        """When ``question`` may find something; not while there is anything to tell."""
        return None if self._differences(wall) else self.stale_resolves.ask_at

    def delivered(self, sent: Incident, wall: float) -> None:
        """The receiver took what was begun."""
        entry = self._store.get(sent.key)
        self._begun = None
        self._schedule.delivered(sent.key)
        if entry is not None:
            self._put(accepted(entry, sent, wall))
        else:
            self.stale_resolves.settle(sent.key)
        self._tidy(wall)

    def failed(
        self, sent: Incident, error: DeliveryError, now: float, wall: float, urgent_round: int = 0
    ) -> float | None:
        """The receiver did not take it; returns when it is tried again, None for never."""
        entry, before = self._store.get(sent.key), self._begun
        self._begun = None
        again_at = None
        if entry is not None and before is not None:
            self._put(refused(entry, before, may_have_arrived=error.may_have_arrived))
        if error.answer is DeliveryOutcome.REJECTED and not leaves_open(sent, before):
            self._bury(sent, before)
        else:
            again_at = self._schedule.failed(sent.key, error, now, urgent_round)
        self._tidy(wall)
        return again_at

    def is_attempted(self, wall: float, urgent_round: int) -> bool:
        """Whether every difference has failed in this flush already."""
        return self._schedule.is_attempted(self._differences(wall), urgent_round)

    def knows_error(self, text: str) -> bool:
        """Whether something still to be told has failed with this very error."""
        return self._schedule.knows_error(text)

    def _wants(self, wall: float) -> list[PendingSend]:
        found = (next_send(entry, self._capabilities, wall) for entry in self._store)
        pendings = [pending for pending in found if pending is not None]
        if any(pending.reason not in NO_NEWS for pending in pendings):
            return pendings
        closing = self.stale_resolves.first_due
        return (
            pendings if closing is None else [*pendings, PendingSend(closing, SendReason.CLOSING)]
        )

    def _differences(self, wall: float) -> list[PendingSend]:
        return [pending for pending in self._wants(wall) if pending.reason not in NO_NEWS]

    def _put(self, entry: OutboxEntry) -> None:
        self._store.put(entry, keep=self._begun.incident.key if self._begun is not None else None)

    def _bury(self, sent: Incident, before: OutboxEntry | None) -> None:
        """The very message is not taken, now or later; what has changed since may be."""
        self._schedule.buried(sent.key)
        if before is None:
            self.stale_resolves.settle(sent.key)
            return
        self._losses["rejected"] += 1
        entry = self._store.get(sent.key)
        if entry is not None:
            self._put(buried(entry, before))

    def _tidy(self, wall: float) -> None:
        """Forget what needs no telling any more, and count what nobody heard of."""
        for entry in self._store:
            key = entry.incident.key
            if is_obsolete(entry):
                self._losses["obsolete"] += not (entry.incident.muted or entry.dead)
                self._store.drop(key)
            elif is_settled(entry, self._capabilities, wall):
                self._store.drop(key)
            elif is_expired(entry, wall):
                self._losses["expired"] += (
                    not entry.dead and entry.state is not DeliveryState.RESOLVED
                )
                self._store.drop(key)
        self._schedule.keep({pending.incident.key for pending in self._wants(wall)})
