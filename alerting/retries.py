"""When a delivery is retried, and how often a receiver is sent anything.

The same holds for every receiver; docs/receivers.md has it as a table. The first success sends all
that waits. A flush, as at the driver's exit, waits for none of the pauses.
"""

from __future__ import annotations

import math

import msgspec
import tenacity
from tenacity.wait import wait_base

from ..core.states import DeliveryOutcome
from .receivers.receiver import DeliveryError

TRANSIENT_WAIT = tenacity.wait_exponential(multiplier=1.0, max=300.0)
"""Of the whole receiver, after so many transient errors in a row."""
LEAST_WAIT_SECONDS = 1.0
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
        self._successes = 0
        self.answered()

    @property
    def is_open(self) -> bool:
        """Whether the receiver is considered down, so that attempts are rare."""
        return self._outage >= OPEN_AFTER

    def due_at(self, failures: Failures | None, *, is_news: bool) -> float:
        """When a message with these failures may be sent; ``is_news``: a critical page."""
        if failures is None:
            # The receiver may have been up for minutes already, and the page is urgent.
            sooner = self._failed_at + NEWS_PAUSE_SECONDS if is_news else math.inf
            return min(self._not_before, max(self._asked_until, sooner))
        has_accepted = failures.asked and failures.successes < self._successes
        if failures.answer is DeliveryOutcome.TRANSIENT or has_accepted:
            return self._not_before
        return max(self._not_before, failures.due_at)

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
        self._outage = 0  # transient failures in a row
        self._failed_at = self._not_before = self._asked_until = -math.inf

    def failed(
        self, before: Failures | None, error: DeliveryError, now: float, flush: int
    ) -> Failures:
        """Note that the receiver did not accept a message; return its failures.

        A brief outage, such as a lost connection, must not cost the page of a driver that exits: a
        flush tries again at once what has failed for the first time.
        """
        is_brief = error.answer is DeliveryOutcome.TRANSIENT and error.retry_after is None
        if error.answer is DeliveryOutcome.TRANSIENT:
            self._wait(now, error.retry_after)
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

    def _wait(self, now: float, retry_after: float | None) -> None:
        """Pause after a transient failure; one out of turn (a flush, a new page) prolongs nothing.

        ``Retry-After`` replaces the pause: a receiver that answers is up, only busy.
        """
        self._failed_at = now
        if now < self._not_before:
            return
        self._outage += 1
        if retry_after is None:
            self._not_before = now + nth_wait(TRANSIENT_WAIT, self._outage)
        else:
            self._asked_until = self._not_before = now + max(retry_after, LEAST_WAIT_SECONDS)

    def _tokens_left(self, now: float, per_minute: float) -> float:
        inflow = (now - self._tokens_at) * per_minute * (1.0 - BURST_SHARE) / MINUTE_SECONDS
        return min(max(1.0, per_minute * BURST_SHARE), self._tokens + inflow)
