"""Delivers incidents to receivers, each in its own thread, with routes and fallbacks."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

import msgspec

from ..core.guard import Guard
from ..core.states import FAILED, OUTCOMES, DeliveryOutcome
from ..core.threads import Loop
from .alert import ESCALATED, LASTING, Alert, Incident
from .finding import WHOLE_DRIVER
from .outbox import Outbox
from .outbox_entry import OutboxEntry
from .receivers.receiver import Asked, DeliveryError, LeftOpen, Receiver

log = logging.getLogger("querypulse")


# -- routing ----------------------------------------------------------------------------------
# Which incidents a receiver gets, and whether as a whole or alert by alert.


class Route(msgspec.Struct, frozen=True):
    """The incidents that one receiver gets, and its fallback.

    ``queries`` are name patterns; an alert of the whole driver always matches. A receiver without
    ``severities`` is only a fallback. ``fallback`` names the receiver that also gets incidents
    that were not taken ``fallback_after_seconds`` after they were queued.
    """

    severities: tuple[str, ...] = ("critical", "warning")
    queries: tuple[str, ...] = ("*",)
    fallback: str | None = None
    fallback_after_seconds: float = 60.0

    def takes(self, incident: Incident) -> bool:
        """Whether the route matches the incident or one of its alerts."""
        return incident.severity in self.severities and any(
            self._matches(alert.labels["query"]) for alert in incident.alerts
        )

    def _matches(self, query: str) -> bool:
        return query == WHOLE_DRIVER or any(fnmatchcase(query, one) for one in self.queries)


class Portions:
    """Splits incidents for a receiver that groups by itself, and remembers their origin."""

    def __init__(self, *, single: bool) -> None:
        self._single = single
        self._whole: dict[str, Incident] = {}

    def offered(
        self, incidents: Iterable[Incident], holds: Callable[[str], bool]
    ) -> tuple[Incident, ...]:
        """``cut`` for all incidents that are open now."""
        incidents = tuple(incidents)
        if self._single:
            self._whole = {part.key: one for one in incidents for part in singly(one)}
        return self.cut(incidents, holds)

    def cut(
        self, incidents: Iterable[Incident], holds: Callable[[str], bool]
    ) -> tuple[Incident, ...]:
        """The incidents, or one for each of their alerts.

        Recovered alerts of a group are included only if the receiver ``holds`` them.
        """
        if not self._single:
            return tuple(incidents)
        parts = ((part, one) for one in incidents for part in singly(one))
        return tuple(
            part for part, one in parts if part.ends_at is None or part is one or holds(part.key)
        )

    def join(self, parts: Iterable[Incident]) -> tuple[Incident, ...]:
        """The whole incidents of these parts, for other receivers."""
        found = [self._whole.get(part.key, part) for part in parts]
        return tuple({one.key: one for one in found}.values())


def singly(incident: Incident) -> tuple[Incident, ...]:
    """One incident for each alert of a group, even if only one alert is left."""
    if not _is_group(incident):
        return (incident,)
    return tuple(_single(incident, alert) for alert in incident.alerts)


def _is_group(incident: Incident) -> bool:
    """Whether its key is that of a group, however many alerts are in it now."""
    return not incident.key.startswith(incident.alerts[0].key)


def _single(incident: Incident, alert: Alert) -> Incident:
    suffix = LASTING if alert.is_lasting else ESCALATED if incident.is_escalated else ""
    key = alert.key_ending(suffix) if suffix else ""
    muted = incident.muted or incident.silenced.get(alert.key, "")
    return Incident((alert,), incident.revision, muted, key)


# -- talk -------------------------------------------------------------------------------------
# Requests to one receiver: their errors are contained, counted and logged.


class Talk:
    """``outcomes`` counts attempts to deliver; ``failed`` is an unexpected exception."""

    def __init__(self, receiver: Receiver, guard: Guard) -> None:
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._receiver = receiver
        self._guard = guard

    def send(self, incident: Incident, wall: float) -> DeliveryError | None:
        """Why the receiver did not take it; None when it did."""
        try:
            self._receiver.send(incident, wall)
        except DeliveryError as error:
            self.outcomes[error.answer.value] += 1
            return error
        except Exception as error:  # noqa: BLE001 - a receiver's bug must not end the deliveries
            self.outcomes[FAILED] += 1
            self._report(error)
            return DeliveryError(
                type(error).__name__, DeliveryOutcome.TRANSIENT, may_have_arrived=True
            )
        self.outcomes[DeliveryOutcome.DELIVERED.value] += 1
        return None

    def ask(self, stale_resolves: tuple[Incident, ...], wall: float) -> tuple[LeftOpen, ...] | None:
        """The incidents of ``stale_resolves`` that are open there; None without an answer."""
        if not isinstance(self._receiver, Asked):
            return ()
        try:
            return self._receiver.left_open(stale_resolves, wall)
        except DeliveryError:
            return None
        except Exception as error:  # noqa: BLE001 - as above
            self._report(error)
            return None

    def _report(self, error: Exception) -> None:
        self._guard.report(f"deliver-{self._receiver.name}", error)


def log_refusal(
    name: str, incident: Incident, error: DeliveryError, wait_seconds: float | None
) -> None:
    """Log the error and what happens next; ``wait_seconds`` is None without another attempt."""
    queries = ", ".join(alert.labels["query"] for alert in incident.alerts)
    outcome = (
        f"kept, next attempt in {wait_seconds:.0f} s"
        if wait_seconds is not None
        else "not sent again as it is"
    )
    log.log(
        logging.WARNING if error.answer is DeliveryOutcome.TRANSIENT else logging.ERROR,
        "querypulse: %s did not take %s of %s: %s; %s",
        *(name, incident.name, queries, error, outcome),
    )


# -- delivery ---------------------------------------------------------------------------------
# Delivers incidents to one receiver in its own thread.


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
            try:
                self._changed.wait_for(lambda: self._is_flushed(this_round), deadline_seconds)
            finally:
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


# -- dispatch ---------------------------------------------------------------------------------
# Hands incidents to every receiver, and overdue ones to its fallback.


class Dispatch:
    """All deliveries of one driver; used by the worker's thread, and never waits for them.

    The fallback of a receiver also gets the incidents that the receiver has not taken within its
    route's time, or will never take. It then gets all their updates until they end.
    """

    def __init__(
        self,
        deliveries: Sequence[Delivery],
        *,
        spool: EntryStore | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Connect the deliveries with their fallbacks.

        Raises:
            ValueError: a fallback does not name a receiver.

        """
        self._deliveries = {delivery.name: delivery for delivery in deliveries}
        self._spool = spool
        self._wall = wall
        self._handed: dict[str, frozenset[str]] = {}
        for delivery in deliveries:
            fallback = delivery.route.fallback
            if fallback is not None and fallback not in self._deliveries:
                known = ", ".join(sorted(self._deliveries))
                raise ValueError(
                    f"receiver {delivery.name!r}: no receiver has the name of its fallback "
                    f"{fallback!r} (receivers: {known})"
                )

    def restore(self, entries: Mapping[str, tuple[OutboxEntry, ...]]) -> tuple[Incident, ...]:
        """Restore the entries of an earlier driver by receiver; return the open incidents.

        Call it before the next ``offer``, and pass its result to ``Lifecycle.restore``: otherwise
        these incidents count as ended. Entries of a removed receiver are deleted, or every start
        would restore them; incidents that it never got are sent to the others.
        """
        for name, delivery in self._deliveries.items():
            delivery.restore(entries.get(name, ()))
        newest: dict[str, Incident] = {}
        for name, held in entries.items():
            is_ours = name in self._deliveries
            if not is_ours and self._spool is not None:
                self._spool.offer(name, ())
            for entry in held:
                if not entry.is_over and (is_ours or entry.is_unnotified):
                    _keep_newest(newest, entry.incident)
        return tuple(newest.values())

    def offer(self, incidents: Iterable[Incident], stale_resolves: Iterable[Incident] = ()) -> None:
        """Hand all open incidents to every receiver, and overdue ones to the fallbacks."""
        incidents, stale_resolves = tuple(incidents), tuple(stale_resolves)
        for delivery in self._deliveries.values():
            delivery.offer(incidents, stale_resolves)
        self._escalate(self._wall())

    def escalate_to_fallback(self) -> None:
        """Give the fallbacks at once what was not taken: the process ends."""
        self._escalate(math.inf)

    def _escalate(self, now_wall: float) -> None:
        for name, delivery in self._deliveries.items():
            if delivery.route.fallback is None:
                continue
            fallback = self._deliveries[delivery.route.fallback]
            overdue = delivery.overdue_incidents(now_wall)
            handed = self._handed.get(name, frozenset())
            self._handed[name] = frozenset(incident.key for incident in overdue)
            fallback.escalate_to_fallback(
                incident
                for incident in overdue
                # Send a resolved one once; a firing one may be new again, or had no room.
                if incident.ends_at is None or incident.key not in handed
            )


def _keep_newest(newest: dict[str, Incident], incident: Incident) -> None:
    known = newest.get(incident.key)
    if known is None or incident.revision > known.revision:
        newest[incident.key] = incident
