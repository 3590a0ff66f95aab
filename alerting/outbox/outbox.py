"""The outbox of one receiver: what it should know, what it knows, what to send next. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ...core.outcomes import LOSS_REASONS, DeliveryOutcome
from ..alert import Incident
from ..receivers.receiver import DeliveryError, ReceiverCapabilities
from .bounded_store import MAX_BYTES, MAX_ENTRIES, BoundedStore
from .entry import (
    DeliveryState,
    OutboxEntry,
    accepted,
    begun,
    buried,
    ended,
    is_expired,
    is_obsolete,
    is_settled,
    leaves_open,
    offered,
    queued,
    refused,
)
from .pending_send import NO_NEWS, PendingSend, SendReason, delayed, next_send
from .send_schedule import SendSchedule
from .stale_resolves import StaleResolves


class Outbox:
    """Compares the open incidents with what one receiver was sent, and sends the difference.

    So a lost hand-off is repaired, no firing incident is dropped, and a resolve never comes before
    its trigger: there is one entry per incident, and only one message is in flight at a time,
    from ``begin`` to ``delivered`` or ``failed``. ``now`` is monotonic, ``wall`` Unix time.
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
        self._losses: Counter[str] = Counter(dict.fromkeys(LOSS_REASONS, 0))

    @property
    def entries(self) -> tuple[OutboxEntry, ...]:
        """All entries, as they are stored for the next process."""
        return tuple(self._store)

    @property
    def losses(self) -> Counter[str]:
        """How many incidents were not sent, by reason."""
        return Counter({**self._losses, "evicted": self._store.evicted})

    @property
    def circuit_open(self) -> bool:
        """Whether the receiver is considered down."""
        return self._schedule.is_open

    def restore(self, entries: Iterable[OutboxEntry], wall: float) -> None:
        """Restore the outbox of an earlier driver; newer entries of this process win.

        The open incidents are known then, and no stale ones are resolved.
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
        """Add these incidents too."""
        for incident in incidents:
            entry = self._store.get(incident.key)
            if incident.ends_at is None and (entry is None or entry.is_over):
                self._schedule.renew(incident.key)
            if entry is not None:
                self._put(offered(entry, incident, wall))
                continue
            entry = queued(incident, wall, self.stale_resolves.claim(incident.key))
            if entry.is_over and not entry.is_critical:
                continue
            self._put(entry)
        self._tidy(wall)

    def holds(self, key: str) -> bool:
        """Whether the receiver should get updates of this incident."""
        entry = self._store.get(key)
        return entry is not None and entry.state is not DeliveryState.RESOLVED

    def pending(self, wall: float) -> int:
        """How many differences have not been sent to the receiver yet."""
        return len(self._differences(wall))

    def overdue(self, wall: float, after_seconds: float) -> tuple[Incident, ...]:
        """Incidents that may not have notified for ``after_seconds``, or never will as they are."""
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
        """The incidents for which to ask the receiver now whether they are open there."""
        ask_at = self.ask_at(wall)
        return self.stale_resolves.unasked if ask_at is not None and ask_at <= now else ()

    def ask_at(self, wall: float) -> float | None:
        """When ``question`` may return something; None while anything waits to be sent."""
        return None if self._differences(wall) else self.stale_resolves.ask_at

    def delivered(self, sent: Incident, wall: float) -> None:
        """The receiver accepted the message in flight."""
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
        """The receiver did not accept it; return when it is tried again, None for never."""
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
        """Whether a pending message has already failed with this same error."""
        return self._schedule.knows_error(text)

    def _wants(self, wall: float) -> list[PendingSend]:
        found = (next_send(entry, self._capabilities, wall) for entry in self._store)
        pendings = [pending for pending in found if pending is not None]
        if any(pending.reason not in NO_NEWS for pending in pendings):
            return pendings
        stale_resolve = self.stale_resolves.first_due
        return (
            pendings
            if stale_resolve is None
            else [*pendings, PendingSend(stale_resolve, SendReason.STALE_RESOLVE)]
        )

    def _differences(self, wall: float) -> list[PendingSend]:
        return [pending for pending in self._wants(wall) if pending.reason not in NO_NEWS]

    def _put(self, entry: OutboxEntry) -> None:
        self._store.put(entry, keep=self._begun.incident.key if self._begun is not None else None)

    def _bury(self, sent: Incident, before: OutboxEntry | None) -> None:
        """The receiver refuses this message for good; a changed one may be accepted."""
        self._schedule.buried(sent.key)
        if before is None:
            self.stale_resolves.settle(sent.key)
            return
        self._losses["rejected"] += 1
        entry = self._store.get(sent.key)
        if entry is not None:
            self._put(buried(entry, before))

    def _tidy(self, wall: float) -> None:
        """Remove entries that need no message any more, and count those that were never sent."""
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
