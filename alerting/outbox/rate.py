"""The rate limit of a receiver, as a token bucket. Pure."""

from __future__ import annotations

import msgspec

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
