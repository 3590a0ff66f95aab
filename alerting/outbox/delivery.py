"""Delivers incidents to one receiver in its own thread."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from ...core.guard import Guard
from ...core.loop import Loop
from ..alert import Incident
from ..receivers.receiver import DeliveryError, LeftOpen, Receiver
from .entry import OutboxEntry
from .outbox import Outbox
from .routing import Portions, Route
from .talk import Talk, log_refusal

POLL_SECONDS = 5.0
"""How often a receiver that needs repetition is checked."""


class EntryStore(Protocol):
    """Stores the entries of an outbox so that they outlive the process."""

    def offer(self, receiver: str, entries: tuple[OutboxEntry, ...]) -> None:
        """Take all entries of one receiver; never waits."""
        ...

    def write_ahead(self) -> None:
        """Wait shortly until what was taken is stored, if that works at all."""
        ...


class Delivery:
    """Sends one receiver the changes in the set of its open incidents.

    ``outcomes`` counts attempts by their outcome; ``failed`` is an unexpected exception, which is
    contained. Only one request is in flight at a time, so a resolve never overtakes its trigger.
    A forked child does nothing: its locks and connections belong to the parent.
    """

    def __init__(
        self,
        receiver: Receiver,
        guard: Guard,
        *,
        route: Route | None = None,
        spool: EntryStore | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = receiver.name
        self.route = route if route is not None else Route()
        self._talk = Talk(receiver, guard)
        self.outcomes = self._talk.outcomes
        self._receiver = receiver
        self._guard = guard
        self._spool = spool
        self._clock = clock
        self._wall = wall
        self._loop = Loop(f"deliver-{receiver.name}", self._step, guard)
        self._outbox = Outbox(receiver.capabilities)
        self._portions = Portions(single=receiver.capabilities.groups_itself)
        self._round = 0
        self._flushes = 0
        self._in_flight = False
        self._saved: tuple[OutboxEntry, ...] | None = None
        self._stale_resolves: Iterable[Incident] = ()
        # Guards the outbox and the five above; never held while sending.
        self._changed = threading.Condition()

    @property
    def pending(self) -> int:
        """How many differences have not been sent to the receiver yet."""
        if self._loop.is_forked:
            return 0
        with self._changed:
            return self._outbox.pending(self._wall())

    @property
    def losses(self) -> Counter[str]:
        """How many incidents were never sent to the receiver, by reason."""
        if self._loop.is_forked:
            return Counter()
        with self._changed:
            return self._outbox.losses

    @property
    def circuit_open(self) -> bool:
        """Whether the receiver is considered down, so that attempts are rare."""
        return self._outbox.circuit_open

    def start(self) -> None:
        """Begin delivering."""
        if not self._loop.is_forked:
            self._loop.start()

    def restore(self, entries: Iterable[OutboxEntry]) -> None:
        """Restore the outbox entries of an earlier driver for this receiver."""
        if self._loop.is_forked:
            return
        with self._changed:
            self._outbox.restore(entries, self._wall())
            self._save()

    def offer(self, incidents: Iterable[Incident], stale_resolves: Iterable[Incident] = ()) -> None:
        """Hand over all open incidents; the newest set wins. Never waits for a receiver.

        An incident that was sent to this receiver stays with it until it ends, despite its route.
        """
        if self._loop.is_forked:
            return
        takes, holds = self.route.takes, self._outbox.holds
        with self._changed:
            portions = self._portions.offered(incidents, holds)
            mine = [one for one in portions if takes(one) or holds(one.key)]
            self._outbox.offer(mine, self._wall(), self._new_stale_resolves(stale_resolves))
            if self._outbox.entries or self._saved != ():
                self._save()
            elif self._outbox.stale_resolves.are_waiting:
                self._changed.notify_all()

    def _new_stale_resolves(self, stale_resolves: Iterable[Incident]) -> list[Incident] | None:
        """The resolves that match the route; None if the (large) set has not changed."""
        if stale_resolves is self._stale_resolves:
            return None
        self._stale_resolves = stale_resolves
        return [one for one in stale_resolves if self.route.takes(one)]

    def escalate_to_fallback(self, incidents: Iterable[Incident]) -> None:
        """Send these too, because another receiver has not taken them."""
        if self._loop.is_forked:
            return
        with self._changed:
            portions = self._portions.cut(incidents, self._outbox.holds)
            new = [one for one in portions if not self._outbox.holds(one.key)]
            self._outbox.add(new, self._wall())
            self._save()

    def overdue(self, now_wall: float) -> frozenset[str]:
        """The keys of the incidents that a fallback should get at Unix time ``now_wall``."""
        return frozenset(incident.key for incident in self.overdue_incidents(now_wall))

    def overdue_incidents(self, now_wall: float) -> tuple[Incident, ...]:
        """Incidents that were not taken in time or never will be, without muted ones."""
        if self._loop.is_forked:
            return ()
        with self._changed:
            overdue = self._outbox.overdue(now_wall, self.route.fallback_after_seconds)
            return self._portions.join(overdue)

    def flush(self, deadline_seconds: float) -> bool:
        """Attempt everything pending now, despite its backoff; True when nothing is left.

        Returns as soon as each difference was delivered, or attempted and failed, since the
        call began, and at the latest after ``deadline_seconds``.
        """
        if self._loop.is_forked:
            return True
        with self._changed:
            self._round += 1
            self._flushes += 1
            this_round = self._round
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_flushed(this_round), deadline_seconds)
            self._flushes -= 1
            return not self._in_flight and not self._outbox.pending(self._wall())

    def close(self, timeout: float) -> None:
        """Stop at once and abort a request in flight; call ``flush`` first to finish sending."""
        if self._loop.is_forked:
            return
        self._loop.stop()
        with self._changed:
            self._changed.notify_all()
        self._guard.attempt(f"close-{self.name}", self._receiver.close)
        self._loop.join(timeout)

    def _save(self) -> None:
        """Give the newest entries to the spool and wake the thread."""
        self._saved = self._outbox.entries
        if self._spool is not None:
            self._spool.offer(self.name, self._saved)
        self._changed.notify_all()

    def _write_ahead(self, incident: Incident) -> None:
        """Let the spool store an open incident before it is sent.

        A process that is killed as it sends leaves no incident that its successor does not know.
        """
        if self._spool is not None and incident.ends_at is None:
            self._spool.write_ahead()

    def _is_flushed(self, this_round: int) -> bool:
        if self._loop.stopping.is_set():
            return True
        return not self._in_flight and self._outbox.is_attempted(self._wall(), this_round)

    def _step(self) -> None:
        """Send the most urgent incident that is due, or wait until one may be."""
        with self._changed:
            if self._loop.stopping.is_set():
                return
            now, wall, this_round = self._clock(), self._wall(), self._round
            incident = self._outbox.begin(now, wall, this_round if self._flushes else 0)
            asked = self._outbox.question(now, wall) if incident is None else ()
            if incident is None and not asked:
                self._changed.wait(self._pause(now, wall))
                return
            self._in_flight = True
            self._save()
        if incident is None:
            self._answered_question(asked, self._talk.ask(asked, wall))
        else:
            self._write_ahead(incident)
            self._record(incident, self._talk.send(incident, self._wall()), this_round)

    def _pause(self, now: float, wall: float) -> float | None:
        """Seconds until there may be something to send; None to wait for the next change."""
        both = (self._outbox.next_at(now, wall), self._outbox.ask_at(wall))
        known = [at for at in both if at is not None]
        if known:
            return max(0.0, min(known) - now)
        return None if self._receiver.capabilities.resend_seconds is None else POLL_SECONDS

    def _answered_question(
        self, asked: tuple[Incident, ...], found: tuple[LeftOpen, ...] | None
    ) -> None:
        with self._changed:
            self._in_flight = False
            self._outbox.stale_resolves.answered(asked, found, self._clock())
            self._changed.notify_all()

    def _record(self, incident: Incident, error: DeliveryError | None, this_round: int) -> None:
        """Record the outcome; log an error if it is new."""
        now, wall = self._clock(), self._wall()
        with self._changed:
            self._in_flight = False
            if error is None:
                self._outbox.delivered(incident, wall)
                self._save()
                return
            known = self._outbox.knows_error(str(error)) or self._loop.stopping.is_set()
            again_at = self._outbox.failed(incident, error, now, wall, this_round)
            self._save()
        if not known:
            wait_seconds = None if again_at is None else again_at - now
            log_refusal(self.name, incident, error, wait_seconds)
