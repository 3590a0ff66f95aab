"""The outbox of one receiver: what it should know, what it knows, what to send next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from ..core.states import LOSS_REASONS, DeliveryOutcome
from .alert import Incident
from .finding import Severity
from .outbox_entry import (
    MAX_BYTES,
    MAX_ENTRIES,
    NO_NEWS,
    BoundedStore,
    DeliveryState,
    OutboxEntry,
    PendingSend,
    SendReason,
    accepted,
    begun,
    buried,
    delayed,
    ended,
    is_expired,
    is_obsolete,
    is_settled,
    leaves_open,
    next_send,
    offered,
    queued,
    refused,
)
from .receivers.receiver import DeliveryError, LeftOpen, ReceiverCapabilities
from .retries import Breaker, TokenBucket, pause_seconds

# -- send schedule ----------------------------------------------------------------------------
# When to send what to one receiver: retries, breaker and rate limit together.


STALE_RESOLVE_SECONDS = 2.0
"""The time between two resolves of incidents that may never have been open."""


class Retry(msgspec.Struct, frozen=True):
    """After a failure: the next attempt is due ``at`` (monotonic seconds).

    ``failures`` counts consecutive failures of one kind: with one ``answer``, and with or without
    ``Retry-After`` (``asked``). ``round`` is the flush in which it failed last.
    """

    at: float
    failures: int
    round: int
    error: str
    answer: DeliveryOutcome
    asked: bool


class SendSchedule:
    """Chooses what is sent next, and when; times are monotonic seconds.

    Each incident has its own pauses after a failure, as ``retries.pause_seconds`` says. The breaker
    and a pause that the receiver asks for delay all of them. A flush overrides both, once for each
    incident.
    """

    def __init__(self, per_minute: float | None = None) -> None:
        self._retries: dict[str, Retry] = {}
        self._breaker = Breaker()
        self._bucket = TokenBucket(per_minute)
        self._stale_resolve_at = float("-inf")

    @property
    def is_open(self) -> bool:
        """Whether the circuit is open: the receiver is considered down."""
        return self._breaker.is_open

    def choose(
        self, pendings: Sequence[PendingSend], now: float, urgent_round: int = 0
    ) -> PendingSend | None:
        """The most urgent of ``pendings`` that may be sent at ``now``.

        In a flush (``urgent_round`` above 0) that is anything not yet attempted in it.
        """
        by_urgency = sorted(pendings, key=self._urgency)
        has_token = self._bucket.ready_at(now) <= now
        for pending in by_urgency:
            urgent = (
                not self._has_failed_in(pending, urgent_round) and pending.reason not in NO_NEWS
            )
            # A page cannot wait for a token when the driver may be about to exit.
            if urgent and (has_token or pending.reason is SendReason.TRIGGER):
                return pending
        if not has_token:
            return None
        return next((pending for pending in by_urgency if self._due_at(pending) <= now), None)

    def next_at(self, pendings: Sequence[PendingSend], now: float) -> float | None:
        """When ``choose`` may find something, None if there is nothing to send."""
        if not pendings:
            return None
        return max(min(map(self._due_at, pendings)), self._bucket.ready_at(now))

    def is_attempted(self, pendings: Sequence[PendingSend], urgent_round: int) -> bool:
        """Whether each of ``pendings`` has failed in this flush already."""
        return all(self._has_failed_in(pending, urgent_round) for pending in pendings)

    def knows_error(self, text: str) -> bool:
        """Whether a pending message has already failed with this same error."""
        return any(retry.error == text for retry in self._retries.values())

    def sent(self, pending: PendingSend, now: float) -> None:
        """A request is sent."""
        self._bucket = self._bucket.taken(now)
        if pending.reason is SendReason.STALE_RESOLVE:
            self._stale_resolve_at = now + STALE_RESOLVE_SECONDS

    def delivered(self, key: str) -> None:
        """The receiver accepted a message: what it asked to delay for long is tried again."""
        self.buried(key)
        for one, retry in self._retries.items():
            if retry.answer is DeliveryOutcome.MISCONFIGURED and retry.asked:
                self._retries[one] = replace(retry, at=float("-inf"))

    def buried(self, key: str) -> None:
        """The receiver answered, and this message is not tried again."""
        self._retries.pop(key, None)
        self._close_circuit()

    def failed(self, key: str, error: DeliveryError, now: float, urgent_round: int) -> float:
        """The receiver did not accept it; return when it may be tried again."""
        if error.answer is DeliveryOutcome.TRANSIENT:
            self._breaker = self._breaker.failed(now, error.retry_after)
        else:
            self._close_circuit()
        asked = error.retry_after is not None
        before = self._retries.get(key)
        again = before is not None and (before.answer, before.asked) == (error.answer, asked)
        failures = before.failures + 1 if before is not None and again else 1
        at = now + pause_seconds(error, failures)
        retry = Retry(at, failures, urgent_round, str(error), error.answer, asked)
        self._retries[key] = retry
        return max(self._ready_at(retry), self._breaker.not_before)

    def renew(self, key: str) -> None:
        """The incident has begun, perhaps again: send it without waiting for an earlier retry."""
        self._retries.pop(key, None)

    def keep(self, keys: Collection[str]) -> None:
        """Forget the retries of all others."""
        self._retries = {key: retry for key, retry in self._retries.items() if key in keys}

    def _close_circuit(self) -> None:
        """Close the circuit: after an outage, everything that waited for its end is sent."""
        if self._breaker.is_open:
            self._retries = {
                key: retry
                for key, retry in self._retries.items()
                if retry.answer is not DeliveryOutcome.TRANSIENT
            }
        self._breaker = Breaker()

    def _has_failed_in(self, pending: PendingSend, urgent_round: int) -> bool:
        retry = self._retries.get(pending.incident.key)
        return urgent_round == 0 or (retry is not None and retry.round >= urgent_round)

    def _due_at(self, pending: PendingSend) -> float:
        retry = self._retries.get(pending.incident.key)
        if pending.reason is SendReason.STALE_RESOLVE:
            ready_at = self._ready_at(retry) if retry is not None else self._stale_resolve_at
            return max(ready_at, self._stale_resolve_at, self._breaker.not_before)
        if retry is not None:
            return max(self._ready_at(retry), self._breaker.not_before)
        is_news = pending.reason is SendReason.TRIGGER and _is_critical(pending)
        return self._breaker.news_at if is_news else self._breaker.not_before

    def _ready_at(self, retry: Retry) -> float:
        """When to retry; in an outage the open breaker alone decides."""
        waits_for_breaker = self._breaker.is_open and retry.answer is DeliveryOutcome.TRANSIENT
        return float("-inf") if waits_for_breaker else retry.at

    def _urgency(self, pending: PendingSend) -> tuple[int, SendReason, bool, float]:
        """New before failed, triggers before resolves, critical first, then the oldest.

        In an outage, failed messages take turns: one that the receiver never accepts must not be
        the only one that is tried.
        """
        retry = self._retries.get(pending.incident.key)
        failures = retry.failures if retry is not None else 0
        turn = failures if self._breaker.is_open else min(failures, 1)
        return turn, pending.reason, not _is_critical(pending), pending.incident.starts_at


def _is_critical(pending: PendingSend) -> bool:
    return pending.incident.severity == Severity.CRITICAL.value


# -- stale resolves ---------------------------------------------------------------------------
# Resolves of incidents that an earlier process may have left open at a receiver.
#
# For most of these keys nothing was ever open. So querypulse first asks a receiver that can be
# asked which of them are open; to any other it sends few resolves, late, and after all other
# messages.


MAX_REMEMBERED = 20_000
"""The most keys remembered as done; then the oldest may be resolved again."""
ASK_AGAIN_SECONDS = 60.0
"""The time until the next question after one without an answer."""
HELD_SECONDS = 90.0
"""Within this time a running process has posted its open alerts again (every 60 s)."""


class StaleResolves:
    """Each resolve is sent once. ``offer`` replaces the set and withdraws the others.

    A receiver that can be asked is asked twice: an alert that was posted again in between belongs
    to a running process, such as another driver of the same app, and is not resolved. It is asked
    only when this process has no alert under the key: to Alertmanager, a warning of this process
    and a critical alert of an earlier one are two alerts.
    """

    def __init__(self, *, asks: bool) -> None:
        self._asks = asks
        self._waiting: dict[str, Incident] = {}
        self._held: dict[str, Incident] = {}
        """Resolves that wait until this process has no alert under their key."""
        self._seen: dict[str, tuple[float, float]] = {}
        """When each was first found open, and when it had last been posted."""
        self._found: dict[str, Incident] = {}
        self._done: dict[str, None] = {}
        self._ask_at = -math.inf

    @property
    def first_due(self) -> Incident | None:
        """The most likely resolve that can be sent."""
        if not self._asks:
            return next(iter(self._waiting.values()), None)
        return next((one for key, one in self._found.items() if key in self._waiting), None)

    @property
    def are_waiting(self) -> bool:
        """Whether anything must be sent or asked, now or later."""
        return bool(self._waiting)

    @property
    def ask_at(self) -> float | None:
        """When to ask the receiver (monotonic seconds); None if there is nothing to ask."""
        ask_at = min(map(self._due_at, self._unasked()), default=None)
        return None if ask_at is None else max(ask_at, self._ask_at)

    @property
    def unasked(self) -> tuple[Incident, ...]:
        """The incidents for which to ask the receiver whether they are open there."""
        return tuple(self._waiting[key] for key in self._unasked())

    def offer(self, stale_resolves: Iterable[Incident] | None, held: Collection[str] = ()) -> None:
        """Replace the set of resolves (None: keep it); critical ones are sent first.

        Resolves wait whose keys are in ``held``: this process has an alert under them.
        """
        if stale_resolves is not None:
            self._replace(stale_resolves, held)
        for key in [key for key in self._held if key not in held]:
            self._waiting[key] = self._held.pop(key)

    def answered(
        self, asked: Iterable[Incident], found: Iterable[LeftOpen] | None, now: float
    ) -> None:
        """Of the ``asked`` incidents the receiver has ``found`` open; None if it did not answer."""
        if found is None:
            self._ask_at = now + ASK_AGAIN_SECONDS
            return
        known = {one.incident.key: one for one in found}
        for key in [one.key for one in asked if one.key in self._waiting]:
            left = known.get(key)
            if left is None:
                self.settle(key)
                continue
            seen_at, posted_at = self._seen.setdefault(key, (now, left.posted_at))
            if left.posted_at > posted_at:
                self.settle(key)
            elif now - seen_at >= HELD_SECONDS:
                self._found[key] = left.incident

    def settle(self, key: str) -> None:
        """Resolve nothing under this key from now on."""
        self._held.pop(key, None)
        self._withdraw(key)
        self._done[key] = None
        if len(self._done) > MAX_REMEMBERED:
            del self._done[next(iter(self._done))]

    def claim(self, key: str) -> Incident | None:
        """The incident to resolve before this process opens one under ``key``; None without one."""
        before = self._waiting.get(key)
        if not self._asks:
            self.settle(key)
            return before
        self._withdraw(key)
        if before is not None:
            self._held[key] = before
        return None

    def _replace(self, stale_resolves: Iterable[Incident], held: Collection[str]) -> None:
        critical: dict[str, Incident] = {}
        others: dict[str, Incident] = {}
        self._held = {}
        for one in stale_resolves:
            key = one.key
            if key in self._done:
                continue
            if key in held:
                self._held[key] = one
            elif one.severity == Severity.CRITICAL.value:
                critical[key] = one
            else:
                others[key] = one
        self._waiting = {**critical, **others}

    def _withdraw(self, key: str) -> None:
        self._waiting.pop(key, None)
        self._seen.pop(key, None)
        self._found.pop(key, None)

    def _unasked(self) -> list[str]:
        return [key for key in self._waiting if key not in self._found] if self._asks else []

    def _due_at(self, key: str) -> float:
        seen = self._seen.get(key)
        return -math.inf if seen is None else seen[0] + HELD_SECONDS


# -- outbox -----------------------------------------------------------------------------------


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
