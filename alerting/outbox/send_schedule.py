"""When to send what to one receiver: retries, breaker and rate limit together. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

from ...core.outcomes import DeliveryOutcome
from ..finding import Severity
from ..receivers.receiver import DeliveryError
from ..retries import Breaker, pause_seconds
from .pending_send import NO_NEWS, PendingSend, SendReason
from .rate import TokenBucket

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
