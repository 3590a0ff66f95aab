"""Delivers incidents to receivers, each in its own thread, with routes, fallbacks and a spool."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from ...core.guard import Guard
from ...core.states import FAILED, OUTCOMES, DeliveryOutcome
from ...core.threads import Deadline, Loop
from ..alert import Incident
from ..kinds import DRIVER_DOWN
from ..receivers.receiver import DeliveryError, Receiver, Route
from .heartbeat import Heartbeat, QueryHeartbeats, ping_of
from .outbox import Outbox, OutboxRow
from .spool import LOAD_SECONDS, FailureHistory, Spool

log = logging.getLogger("querypulse")

POLL_SECONDS = 5.0
"""How often a receiver that needs repetition is checked."""
HELD_SECONDS = 0.2
"""How often it is checked whether what is held may be sent."""


# -- delivery ---------------------------------------------------------------------------------


class Attempt(msgspec.Struct, frozen=True):
    """One message to a receiver at Unix time ``at``, and its outcome; ``error`` explains it."""

    at: float
    receiver: str
    incident: Incident
    outcome: str
    error: str = ""


class Delivery:
    """Sends one receiver, in a thread, the changes in the set of its open incidents.

    While ``is_held`` returns true of its name, another process sends them, and they wait. What has
    been resolved is kept for ``keep_ended_seconds``, so that the other one learns of it.
    ``outcomes`` counts attempts by their outcome; ``failed`` is an unexpected exception, which is
    contained.
    """

    def __init__(
        self,
        receiver: Receiver,
        guard: Guard,
        *,
        route: Route | None = None,
        spool: Spool | None = None,
        on_attempt: Callable[[Attempt], object] = lambda _: None,
        is_held: Callable[[str], bool] = lambda _: False,
        keep_ended_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = receiver.name
        self.route = route if route is not None else Route()
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._receiver = receiver
        self.guard = guard
        self._spool = spool
        self._on_attempt = on_attempt
        self._is_held = is_held
        self._clock = clock
        self._wall = wall
        self._loop = Loop(f"deliver-{receiver.name}", self._step, guard)
        self._outbox = Outbox(receiver.capabilities, keep_ended_seconds=keep_ended_seconds)
        self._flush = 0
        """The number of the newest flush."""
        self._flushing = 0
        """How many flushes wait."""
        # Guards the outbox and the two above; never held while sending.
        self._changed = threading.Condition()

    @property
    def pending(self) -> int:
        """How many differences have not been sent to the receiver yet."""
        with self._changed:
            return self._outbox.pending(self._wall())

    @property
    def losses(self) -> Counter[str]:
        """How many incidents were never sent to the receiver, by reason."""
        with self._changed:
            return self._outbox.losses.copy()

    @property
    def circuit_open(self) -> bool:
        """Whether the receiver is considered down, so that attempts are rare."""
        return self._outbox.circuit_open

    @property
    def is_failing(self) -> bool:
        """Whether the receiver does not take what it is sent, so that attempts are rare."""
        with self._changed:
            return self._outbox.circuit_open or self._outbox.is_barred(self._wall())

    def start(self) -> None:
        """Begin delivering."""
        self._loop.start()

    def restore(self, rows: Iterable[OutboxRow], *, is_complete: bool) -> None:
        """Restore the rows of an earlier driver for this receiver, as ``Outbox.restore`` says."""
        with self._changed:
            self._outbox.restore(rows, self._wall(), is_complete=is_complete)
            self._save()

    def offer(self, incidents: Iterable[Incident]) -> None:
        """Hand over all open incidents; the newest set wins. Never waits for a receiver.

        An incident that was sent to this receiver stays with it until it ends, despite its route.
        """
        takes, holds = self.route.takes, self._outbox.holds
        with self._changed:
            mine = [incident for incident in incidents if takes(incident) or holds(incident.key)]
            self._outbox.offer(mine, self._wall())
            self._save()

    def rows(self) -> tuple[OutboxRow, ...]:
        """What the receiver should know, and knows, for another process that watches the same."""
        with self._changed:
            return tuple(row for row in self._outbox.rows if not row.incident.is_orphan)

    def mirror(self, rows: Iterable[OutboxRow], *, is_leader: bool) -> list[Incident]:
        """Take over what another process has sent; see ``Outbox.mirror``."""
        with self._changed:
            unknown = self._outbox.mirror(rows, self._wall(), is_leader=is_leader)
            self._save()
        return unknown

    def escalate_to_fallback(self, incidents: Iterable[Incident]) -> None:
        """Send these too, because another receiver has not taken them."""
        with self._changed:
            new = [incident for incident in incidents if not self._outbox.holds(incident.key)]
            self._outbox.add(new, self._wall())
            if new:
                self._save()

    def take_overdue(self, now_wall: float) -> tuple[Incident, ...]:
        """Incidents that a fallback should get at Unix time ``now_wall``, without muted ones.

        They were not taken in time, or never will be.
        """
        with self._changed:
            return self._outbox.take_overdue(now_wall, self.route.fallback_after_seconds)

    def flush(self, deadline_seconds: float) -> bool:
        """Attempt everything pending now, despite its backoff; True when nothing is left.

        Returns as soon as each difference was delivered, or attempted and failed, since the
        call began, and at the latest after ``deadline_seconds``.
        """
        if self._is_held(self.name):
            return False
        with self._changed:
            self._flush += 1
            self._flushing += 1
            flush = self._flush
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: self._is_flushed(flush), deadline_seconds)
            finally:
                self._flushing -= 1
            return not self._outbox.is_sending and not self._outbox.pending(self._wall())

    def close(self, timeout: float) -> None:
        """Stop at once and abort a request in flight; call ``flush`` first to finish sending."""
        self._loop.stop()
        with self._changed:
            self._changed.notify_all()
        self.guard.attempt(f"close-{self.name}", self._receiver.close)
        self._loop.join(timeout)

    def _save(self) -> None:
        """Give the newest rows to the spool and wake the thread."""
        if self._spool is not None:
            self._spool.offer_rows(self.name, self._outbox.rows)
        self._changed.notify_all()

    def _is_flushed(self, flush: int) -> bool:
        if self._loop.stopping.is_set():
            return True
        return not self._outbox.is_sending and self._outbox.is_flushed(self._wall(), flush)

    def _step(self) -> None:
        """Send the most urgent incident that is due, or wait until one may be."""
        with self._changed:
            if self._loop.stopping.is_set():
                return
            if self._is_held(self.name):
                self._changed.wait(HELD_SECONDS)
                return
            now, wall = self._clock(), self._wall()
            incident = self._outbox.begin(now, wall, self._flush if self._flushing else 0)
            if incident is None:
                self._changed.wait(self._pause(now, wall))
                return
            self._save()
        if self._spool is not None and not incident.is_over and not _is_last_words(incident):
            # A process that is killed as it sends leaves no incident that its successor does not
            # know.
            self._spool.write_ahead()
        self._record(incident, self._send(incident))

    def _pause(self, now: float, wall: float) -> float | None:
        """Seconds until there may be something to send; None to wait for the next change."""
        next_at = self._outbox.next_at(now, wall)
        if next_at is not None:
            return max(0.0, next_at - now)
        needs_repeats = self._receiver.capabilities.resend_seconds is not None
        return POLL_SECONDS if needs_repeats and self._outbox.rows else None

    def _send(self, incident: Incident) -> DeliveryError | None:
        """Why the receiver did not take it; None when it did."""
        error, outcome = None, DeliveryOutcome.DELIVERED.value
        try:
            self._receiver.send(incident, self._wall())
        except DeliveryError as refusal:
            error, outcome = refusal, refusal.answer.value
        except Exception as bug:  # noqa: BLE001 - a receiver's bug must not end the deliveries
            self.guard.report(f"deliver-{self.name}", bug)
            answer = DeliveryOutcome.TRANSIENT
            error = DeliveryError(type(bug).__name__, answer, may_have_arrived=True)
            outcome = FAILED
        self.outcomes[outcome] += 1
        text = "" if error is None else str(error)
        self._on_attempt(Attempt(self._wall(), self.name, incident, outcome, text))
        return error

    def _record(self, incident: Incident, error: DeliveryError | None) -> None:
        """Note the outcome; log an error if it is new."""
        now, wall = self._clock(), self._wall()
        with self._changed:
            if error is None:
                self._outbox.delivered(wall)
                self._save()
                return
            is_known = self._outbox.knows_error(str(error)) or self._loop.stopping.is_set()
            again_at = self._outbox.failed(error, now, wall)
            self._save()
        if not is_known:
            self._log_refusal(incident, error, None if again_at is None else again_at - now)

    def _log_refusal(
        self, incident: Incident, error: DeliveryError, wait_seconds: float | None
    ) -> None:
        queries = dict.fromkeys(alert.query for alert in incident.alerts)
        names = dict.fromkeys(alert.name for alert in incident.alerts)
        log.log(
            logging.WARNING if error.answer is DeliveryOutcome.TRANSIENT else logging.ERROR,
            "querypulse: %s did not take %s of %s: %s; %s",
            self.name,
            ", ".join(names) or "what may be open",
            ", ".join(queries) or incident.query,
            error,
            "not sent again as it is"
            if wait_seconds is None
            else f"kept, next attempt in {wait_seconds:.0f} s",
        )


def _is_last_words(incident: Incident) -> bool:
    """Whether the driver reports its own end, which leaves it no time to wait for the disk.

    Who has killed its JVM may kill this process, too: YARN does so within a third of a second.
    """
    return any(alert.name == DRIVER_DOWN for alert in incident.firing)


# -- notifier ---------------------------------------------------------------------------------


class Notifier:
    """All deliveries of one driver, with their spool and the heartbeats.

    The worker hands over the open incidents after each evaluation, and never waits. The fallback of
    a receiver also gets the incidents that the receiver has not taken within its route's time, or
    will never take. It then gets all their updates until they end.

    ``restore`` gets the incidents that an earlier process of the same app left open, and must see
    to it that they are in the next ``offer``, or they count as ended. It is called at once, or
    where the spool cannot be read at once, by the thread that calls ``offer``.
    """

    def __init__(
        self,
        deliveries: Sequence[Delivery],
        spool: Spool | None = None,
        *,
        heartbeat: Heartbeat | None = None,
        query_heartbeats: QueryHeartbeats | None = None,
        restore: Callable[[tuple[Incident, ...]], None] = lambda _: None,
        redact: Callable[[str], str] = str,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.deliveries = deliveries
        self.failure_history = FailureHistory(spool, redact)
        self.query_heartbeats = query_heartbeats or QueryHeartbeats({})
        self._by_name = {delivery.name: delivery for delivery in deliveries}
        self._spool = spool
        self._heartbeat = heartbeat
        self._restore = restore
        self._wall = wall
        self._left: dict[str, Incident] = {}
        """By key, what another process left open, until it certainly does not run any more."""
        self._ends: dict[str, Incident] = {}
        """By key, what of it has ended here meanwhile, and orphans."""
        self._is_complete = True
        """Whether the spool has all that was sent: not what a dying attempt could not store."""
        self._load()

    @property
    def spool_problem(self) -> str:
        """Why the configured spool does not work; empty while it does."""
        return self._spool.problem if self._spool is not None else ""

    @property
    def outcomes(self) -> dict[str, Mapping[str, int]]:
        """Counts of attempts by outcome, by the name of a receiver or heartbeat."""
        outcomes: dict[str, Mapping[str, int]] = {
            delivery.name: delivery.outcomes for delivery in self.deliveries
        }
        if self._heartbeat is not None:
            outcomes[self._heartbeat.name] = self._heartbeat.outcomes
        return outcomes | self.query_heartbeats.outcomes

    def start(self) -> None:
        """Start deliveries and heartbeats."""
        for delivery in self.deliveries:
            delivery.start()
        if self._heartbeat is not None:
            self._heartbeat.start()
        self.query_heartbeats.start()

    def offer(self, incidents: tuple[Incident, ...]) -> None:
        """Hand all open incidents, and orphans, to every receiver, overdue ones to fallbacks.

        While another process of the same app runs, or may run, what is open may be its own: until
        then no orphan incident is sent, and what it left open does not end.
        """
        keys = {incident.key for incident in incidents if not incident.is_orphan}
        late = self._load(0.0)
        incidents += tuple(incident for incident in late if incident.key not in keys)
        if self._spool is not None:
            incidents = self._held_back(incidents, is_taken=self._spool.is_taken)
        for delivery in self.deliveries:
            delivery.guard.attempt(f"offer-{delivery.name}", partial(delivery.offer, incidents))
        self._escalate(self._wall())
        if self._heartbeat is not None:
            self._heartbeat.offer(ping_of(incidents))

    def rows(self) -> dict[str, tuple[OutboxRow, ...]]:
        """What each receiver should know, and knows, by its name."""
        return {delivery.name: delivery.rows() for delivery in self.deliveries}

    def failing(self) -> list[str]:
        """The names of the receivers that do not take what they are sent."""
        return [delivery.name for delivery in self.deliveries if delivery.is_failing]

    def mirror(
        self, rows: Mapping[str, Iterable[OutboxRow]], *, is_leader: bool
    ) -> tuple[Incident, ...]:
        """Take over what another process has sent; return the open incidents that are new here.

        They must be in the next ``offer``, or they count as ended.
        """
        unknown: dict[str, Incident] = {}
        for delivery in self.deliveries:
            theirs = rows.get(delivery.name, ())
            new = delivery.mirror(theirs, is_leader=is_leader)
            unknown |= {incident.key: incident for incident in new}
        return tuple(unknown.values())

    def flush(self, deadline: Deadline) -> bool:
        """Attempt all pending deliveries, each receiver within its share of the time.

        A receiver that hangs must not keep a page from the others.
        """
        waiting = range(len(self.deliveries), 0, -1)
        delivered = [
            delivery.flush(deadline.left / left)
            for delivery, left in zip(self.deliveries, waiting, strict=True)
        ]
        if self._spool is not None and not self._spool.problem:
            # If the driver is killed after this, its successor knows what was sent.
            self._spool.flush(deadline.left)
        return all(delivered)

    def close(self, deadline: Deadline) -> None:
        """End every thread; what was not sent stays in the spool, if there is one.

        Fallbacks get the undelivered incidents before that: there is no later attempt.
        """
        self._escalate(math.inf)
        fallbacks = {delivery.route.fallback for delivery in self.deliveries}
        for delivery in self.deliveries:
            if delivery.name in fallbacks and delivery.pending:
                delivery.flush(deadline.left / 2)
        for delivery in self.deliveries:
            delivery.close(deadline.left)
        if self._spool is not None:
            self._spool.close(deadline.left)
        if self._heartbeat is not None:
            self._heartbeat.close(deadline.left)
        self.query_heartbeats.close(deadline)

    def _load(self, timeout: float = LOAD_SECONDS) -> tuple[Incident, ...]:
        """Restore what the spool holds, once; return the incidents that are still open.

        Rows of a removed receiver are deleted, or every start would restore them; incidents that it
        never got are sent to the others.
        """
        left = self._spool.load(timeout) if self._spool is not None else None
        if self._spool is None or left is None:
            return ()
        self.failure_history.left = left
        # What is read again later has no attempt.
        self._is_complete = self._is_complete and left.attempt is None
        for name, delivery in self._by_name.items():
            delivery.restore(left.rows.get(name, ()), is_complete=self._is_complete)
        for name in left.rows.keys() - self._by_name.keys():
            self._spool.offer_rows(name, ())
        incidents = [
            row.incident
            for name, rows in left.rows.items()
            for row in rows
            if not row.is_over and (name in self._by_name or row.is_unsent)
        ]
        incidents.sort(key=lambda incident: incident.revision)
        restored = tuple({incident.key: incident for incident in incidents}.values())
        self._restore(restored)
        self._left |= {incident.key: incident for incident in restored}
        return restored

    def _held_back(
        self, incidents: tuple[Incident, ...], *, is_taken: bool
    ) -> tuple[Incident, ...]:
        """Return what may be offered, as ``offer`` says."""
        firing = {incident.key: incident for incident in incidents if incident.firing}
        if not is_taken:
            ends = [end for key, end in self._ends.items() if key not in firing]
            self._left, self._ends = {}, {}
            return (*incidents, *ends)
        self._left |= {key: firing[key] for key in firing.keys() & self._left.keys()}
        orphans = {incident.key: incident for incident in incidents if incident.is_orphan}
        ended = {incident.key: incident for incident in incidents if incident.is_over}
        ended = {key: end for key, end in ended.items() if key in self._left}
        over = orphans | self._ends | {key: ended[key] for key in ended if key not in orphans}
        self._ends = {key: end for key, end in over.items() if key not in firing}
        own = [
            incident
            for incident in incidents
            if not incident.is_orphan and incident.key not in self._ends
        ]
        return (*own, *(left for key, left in self._left.items() if key not in firing))

    def _escalate(self, now_wall: float) -> None:
        for delivery in self.deliveries:
            if delivery.route.fallback is not None:
                fallback = self._by_name[delivery.route.fallback]
                fallback.escalate_to_fallback(delivery.take_overdue(now_wall))
