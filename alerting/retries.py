"""How a delivery is retried: within a post, between posts, and while a receiver is down.

The same holds for every receiver. PagerDuty, for example, is retried so:

| when | after | seconds until the next attempt |
|---|---|---|
| within a post by HTTP | a transient error | up to 0.25, then up to 0.5; three attempts in 10 s |
| within a post by HTTP | `Retry-After` of at most 2 | what it says |
| between posts | a transient error | 1, 2, 4, 8, 16, 32, 60, 60 ... |
| between posts | `Retry-After` | what it says, up to 300; 5 after a 429 without it |
| between posts | an error in the configuration | 300; 3600 after a 410 |
| between posts | a rejected resolve | 300 |
| receiver down, at first | five transient errors | at 1, 3, 7, 15, 22, 30 since the first |
| receiver down, later | each transient error | 30, 60, 120, 240, 300, 300 ... |
| receiver down | a new critical page | 5 since the last error, once |

While a receiver is down, its pauses replace those between posts. The first success sends all that
waits. A flush, as at the driver's exit, waits for none of them. ``outbox.py`` applies
the table to the messages of a receiver; ``TokenBucket`` limits its requests per minute.
"""

from __future__ import annotations

import threading

import msgspec
import tenacity
from msgspec.structs import replace
from tenacity.wait import wait_base

from ..core.states import DeliveryOutcome
from .receivers.receiver import DeliveryError

# -- what a receiver asks for -------------------------------------------------------------------

MAX_RETRY_AFTER_SECONDS = 300.0
"""The longest pause that a receiver can ask for: a page is waiting."""
RATE_LIMIT_WAIT_SECONDS = 5.0
"""For a 429 that does not say how long: PagerDuty documents no ``Retry-After``."""
GONE_WAIT_SECONDS = 3600.0
"""A webhook that answers 410 was removed there, possibly by mistake."""

# -- within a post ------------------------------------------------------------------------------

ATTEMPTS = 3
SHORT_WAIT_SECONDS = 2.0
"""Longer waits are left to the next post: a wait here would delay the other alerts too."""
JITTER = tenacity.wait_random_exponential(multiplier=0.25, max=SHORT_WAIT_SECONDS)


def attempts(total_seconds: float, closing: threading.Event) -> tenacity.Retrying:
    """A few attempts within ``total_seconds`` on transient errors; ``closing`` ends the waits."""
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(_passes_soon),
        wait=_wait,
        stop=tenacity.stop_after_attempt(ATTEMPTS)
        | tenacity.stop_before_delay(total_seconds)
        | tenacity.stop_when_event_set(closing),
        sleep=tenacity.sleep_using_event(closing),
        reraise=True,
    )


def _passes_soon(error: BaseException) -> bool:
    return (
        isinstance(error, DeliveryError)
        and error.answer is DeliveryOutcome.TRANSIENT
        and (error.retry_after or 0.0) <= SHORT_WAIT_SECONDS
    )


def _wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    return max(JITTER(state), getattr(error, "retry_after", None) or 0.0)


# -- between posts ------------------------------------------------------------------------------

TRANSIENT_WAIT = tenacity.wait_exponential(multiplier=1.0, max=60.0)
MISCONFIGURED_WAIT = tenacity.wait_fixed(300.0)
"""Also for what was rejected and is sent again nevertheless."""


def pause_seconds(error: DeliveryError, failures: int) -> float:
    """Seconds until the next post, after so many ``failures`` like this one in a row."""
    transient = error.answer is DeliveryOutcome.TRANSIENT
    wait = nth_wait(TRANSIENT_WAIT if transient else MISCONFIGURED_WAIT, failures)
    return max(wait, error.retry_after or 0.0)


def nth_wait(wait: wait_base, number: int) -> float:
    """The wait of a policy after so many failures in a row."""
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.attempt_number = number
    return wait(state)


# -- while a receiver is down -------------------------------------------------------------------

OPEN_AFTER = 5
EARLY_SECONDS = (1.0, 3.0, 7.0, 15.0, 22.0, 30.0)
"""When a new outage is tried again, in seconds since it began."""
BREAKER_WAIT = tenacity.wait_exponential(multiplier=30.0, max=300.0)
NEWS_PAUSE_SECONDS = 5.0
"""A new page does not wait for a long pause to end, only this long after the last failure."""


class Breaker(msgspec.Struct, frozen=True):
    """Counts the consecutive transient failures of one receiver; times are monotonic seconds.

    It opens at the fifth failure. Then there is one attempt at a time: 1, 3, 7, 15, 22 and 30 s
    after the failures began, so that many pages do not prolong a short outage, and then after
    pauses of 30, 60, 120, 240 and 300 seconds. Any other answer closes it. Nothing is sent before
    ``not_before``, which an open breaker sets, or a receiver that asks for a pause
    (``rest_until``). The breaker delays and drops nothing.
    """

    failures: int = 0
    began_at: float = 0.0
    not_before: float = float("-inf")
    pauses: int = 0
    asked: bool = False
    """The last failure came with a ``Retry-After``."""
    rest_until: float = float("-inf")
    failed_at: float = float("-inf")

    @property
    def is_open(self) -> bool:
        """Whether the receiver is considered down."""
        return self.failures >= OPEN_AFTER

    @property
    def news_at(self) -> float:
        """When a critical page that was never tried may be sent, even during a pause.

        The receiver may have been up for minutes already, and the page is urgent.
        """
        if not self.is_open:
            return self.not_before
        return min(self.not_before, max(self.rest_until, self.failed_at + NEWS_PAUSE_SECONDS))

    def failed(self, now: float, retry_after: float | None = None) -> Breaker:
        """The breaker after a transient failure at ``now``.

        ``retry_after`` is the pause that the receiver asked for, in seconds. The first request
        counts as it is: a receiver that asks is up, only busy. A failure before ``not_before`` was
        out of turn (a flush, a new page) and makes no pause longer.
        """
        if now < self.not_before:
            return replace(self, failed_at=now)
        began_at = now if self.failures == 0 else self.began_at
        rest = Breaker(
            failures=self.failures + 1,
            began_at=began_at,
            not_before=now + (retry_after or 0.0),
            pauses=self.pauses,
            asked=retry_after is not None,
            rest_until=now + (retry_after or 0.0),
            failed_at=now,
        )
        if not rest.is_open or (rest.asked and not self.asked):
            return rest
        return rest._paused(now)

    def _paused(self, now: float) -> Breaker:
        early = (self.began_at + seconds for seconds in EARLY_SECONDS)
        next_at = next((at for at in early if at > now), None)
        pauses = self.pauses
        if next_at is None:
            pauses += 1
            next_at = now + nth_wait(BREAKER_WAIT, pauses)
        return replace(self, not_before=max(self.not_before, next_at), pauses=pauses)


# -- rate -------------------------------------------------------------------------------------
# The rate limit of a receiver, as a token bucket.


SECONDS = 60.0
BURST_SHARE = 0.2
"""The share of a minute's requests that may leave at once."""


class TokenBucket(msgspec.Struct, frozen=True):
    """Lets at most ``per_minute`` requests go in any 60 seconds; None lets all go.

    A fifth of them may leave at once, the other four flow in over the minute: so a full
    bucket and a minute's inflow together are never more than the limit. ``tokens`` were left
    at ``at`` (monotonic seconds). They may be overdrawn, by requests that cannot wait.
    """

    per_minute: float | None
    tokens: float = 0.0
    at: float = float("-inf")

    def ready_at(self, now: float) -> float:
        """When a token is available: ``now``, or later."""
        if self.per_minute is None:
            return now
        missing = 1.0 - self._left(now, self.per_minute)
        return now + max(0.0, missing) / self._inflow(self.per_minute)

    def taken(self, now: float) -> TokenBucket:
        """The bucket with one token less."""
        if self.per_minute is None:
            return self
        return TokenBucket(self.per_minute, self._left(now, self.per_minute) - 1.0, now)

    def _left(self, now: float, per_minute: float) -> float:
        inflow = (now - self.at) * self._inflow(per_minute)
        return min(max(1.0, per_minute * BURST_SHARE), self.tokens + inflow)

    @staticmethod
    def _inflow(per_minute: float) -> float:
        """Tokens a second."""
        return per_minute * (1.0 - BURST_SHARE) / SECONDS
