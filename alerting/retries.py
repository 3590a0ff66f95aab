"""How a delivery is retried between posts, and while a receiver is down.

The same holds for every receiver; docs/receivers.md has it as a table. While a receiver is down,
its pauses replace those between posts. The first success sends all that waits. A flush, as at the
driver's exit, waits for none of them.
"""

from __future__ import annotations

import math

import msgspec
import tenacity
from msgspec.structs import replace
from tenacity.wait import wait_base

from ..core.states import DeliveryOutcome
from .receivers.receiver import DeliveryError

TRANSIENT_WAIT = tenacity.wait_exponential(multiplier=1.0, max=300.0)
"""Of the whole receiver, after so many transient errors in a row."""
MISCONFIGURED_WAIT_SECONDS = 300.0
"""Of one message; also of one that was rejected and is sent again nevertheless."""
OPEN_AFTER = 5
NEWS_PAUSE_SECONDS = 5.0
"""A new page does not wait for a long pause to end, only this long after the last failure."""
MINUTE_SECONDS = 60.0
BURST_SHARE = 0.2
"""The share of a minute's requests that may leave at once; the others flow in over the minute."""


def nth_wait(wait: wait_base, number: int) -> float:
    """The wait of a policy after so many failures in a row."""
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.attempt_number = number
    return wait(state)


class Failures(msgspec.Struct, frozen=True):
    """The last failures of one message: ``count`` with one answer in a row.

    It is due at ``due_at``; if the receiver ``asked`` for that time, as soon as it has accepted
    anything since then (``successes``). ``flush``: the number of the last flush in which it failed.
    """

    count: int
    due_at: float
    flush: int
    error: str
    answer: DeliveryOutcome
    asked: bool
    successes: int


class Outage(msgspec.Struct, frozen=True):
    """The transient failures of a receiver since its last other answer.

    Nothing is sent before ``not_before``; until ``asked_until``, the receiver asked for that.
    """

    count: int = 0
    failed_at: float = -math.inf
    not_before: float = -math.inf
    asked_until: float = -math.inf
    asked: bool = False
    """The last failure came with a ``Retry-After``."""

    @property
    def is_open(self) -> bool:
        """Whether the receiver is considered down."""
        return self.count >= OPEN_AFTER

    def failed(self, now: float, retry_after: float | None) -> Outage:
        """The outage after one more failure.

        The first ``Retry-After`` replaces the pause: a receiver that answers is up, only busy. A
        failure before ``not_before`` was out of turn (a flush, a new page), and prolongs nothing.
        """
        if now < self.not_before:
            return replace(self, failed_at=now)
        count, asked = self.count + 1, retry_after is not None
        pause = 0.0 if asked and not self.asked else nth_wait(TRANSIENT_WAIT, count)
        asked_until = now + (retry_after or 0.0)
        return Outage(count, now, max(asked_until, now + pause), asked_until, asked)


class Schedule:
    """When one receiver may be sent what, as the table in docs/receivers.md says.

    Transient errors delay all messages, any other error only its own. ``per_minute`` is a token
    bucket: a full bucket and a minute's inflow are together never more. Times are monotonic
    seconds; nothing is dropped.
    """

    def __init__(self, per_minute: float | None = None) -> None:
        self._per_minute = per_minute
        self._tokens = 0.0
        self._tokens_at = -math.inf
        self._outage = Outage()
        self._successes = 0

    @property
    def is_open(self) -> bool:
        """Whether the receiver is considered down, so that attempts are rare."""
        return self._outage.is_open

    def due_at(self, failures: Failures | None, *, is_news: bool) -> float:
        """When a message with these failures may be sent; ``is_news``: a critical page."""
        outage = self._outage
        if failures is None:
            # The receiver may have been up for minutes already, and the page is urgent.
            sooner = outage.failed_at + NEWS_PAUSE_SECONDS if is_news else math.inf
            return min(outage.not_before, max(outage.asked_until, sooner))
        has_accepted = failures.asked and failures.successes < self._successes
        if failures.answer is DeliveryOutcome.TRANSIENT or has_accepted:
            return outage.not_before
        return max(outage.not_before, failures.due_at)

    def turn(self, failures: Failures | None) -> int:
        """The place of a message among others: those that have not failed go first.

        In an outage, failed messages take turns: one that the receiver never accepts must not be
        the only one that is tried.
        """
        count = 0 if failures is None else failures.count
        return count if self.is_open else min(count, 1)

    def token_at(self, now: float) -> float:
        """When the rate limit allows a request: ``now``, or later."""
        if self._per_minute is None:
            return now
        missing = max(0.0, 1.0 - self._tokens_left(now, self._per_minute))
        return now + missing * MINUTE_SECONDS / (self._per_minute * (1.0 - BURST_SHARE))

    def spend(self, now: float) -> None:
        """Count a request; one that cannot wait overdraws the limit."""
        if self._per_minute is not None:
            self._tokens, self._tokens_at = self._tokens_left(now, self._per_minute) - 1.0, now

    def delivered(self) -> None:
        """Note that the receiver accepted a message."""
        self._successes += 1
        self.answered()

    def answered(self) -> None:
        """Note that the receiver has answered: everything that waited for that is due."""
        self._outage = Outage()

    def failed(
        self, before: Failures | None, error: DeliveryError, now: float, flush: int
    ) -> Failures:
        """Note that the receiver did not accept a message; return its failures.

        A brief outage, such as a lost connection, must not cost the page of a driver that exits: a
        flush tries again at once what has failed for the first time.
        """
        is_brief = error.answer is DeliveryOutcome.TRANSIENT and error.retry_after is None
        if error.answer is DeliveryOutcome.TRANSIENT:
            self._outage = self._outage.failed(now, error.retry_after)
        else:
            self.answered()
        again = before is not None and before.answer is error.answer
        return Failures(
            before.count + 1 if before is not None and again else 1,
            now + max(MISCONFIGURED_WAIT_SECONDS, error.retry_after or 0.0),
            0 if before is None and is_brief else flush,
            str(error),
            error.answer,
            error.retry_after is not None,
            self._successes,
        )

    def _tokens_left(self, now: float, per_minute: float) -> float:
        inflow = (now - self._tokens_at) * per_minute * (1.0 - BURST_SHARE) / MINUTE_SECONDS
        return min(max(1.0, per_minute * BURST_SHARE), self._tokens + inflow)
