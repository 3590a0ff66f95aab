"""A circuit breaker: sends less often to a receiver that is down. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

OPEN_AFTER = 5
EARLY_SECONDS = (1.0, 3.0, 7.0, 15.0, 22.0, 30.0)
"""When a new outage is tried again, in seconds since it began."""
FIRST_PAUSE_SECONDS = 30.0
MAX_PAUSE_SECONDS = 300.0
MAX_DOUBLINGS = 4
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
            doubled = FIRST_PAUSE_SECONDS * 2.0 ** min(pauses, MAX_DOUBLINGS)
            next_at, pauses = now + min(doubled, MAX_PAUSE_SECONDS), pauses + 1
        return replace(self, not_before=max(self.not_before, next_at), pauses=pauses)
