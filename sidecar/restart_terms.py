"""How often and how fast a supervised query is started again. Pure."""

from __future__ import annotations

import msgspec
import tenacity

from ..alerting.retries import nth_wait

FIRST_PAUSE_SECONDS = 1.0
JITTER = tenacity.wait_random(0.0, 1.0)
"""Queries that fail together are not started together."""


class RestartTerms(msgspec.Struct, frozen=True):
    """How often and how fast a query is started again.

    Raises:
        ValueError: a term is not allowed.

    """

    restarts: int = 10
    """How many restarts it may use up within ``within_seconds``, or without a commit."""
    within_seconds: float = 3600.0
    max_pause_seconds: float = 300.0
    same_batch_failures: int = 5
    """So many failures of one batch with one error class end the restarts; at most 16."""

    def __post_init__(self) -> None:
        allowed = {
            "restarts": (self.restarts, 0, 1000),
            "within_seconds": (self.within_seconds, 1, float("inf")),
            "max_pause_seconds": (self.max_pause_seconds, FIRST_PAUSE_SECONDS, 86400),
            "same_batch_failures": (self.same_batch_failures, 2, 16),
        }
        for name, (value, least, most) in allowed.items():
            if not isinstance(value, (int, float)) or not least <= value <= most:
                raise ValueError(f"supervise: {name} must be {least:g} to {most:g}, given {value}")

    def pause(self, failures: int) -> float:
        """Seconds until the next start, after so many failures: 1, 2, 4, 8 ... and jitter."""
        longest = self.max_pause_seconds
        wait = tenacity.wait_exponential(multiplier=FIRST_PAUSE_SECONDS, max=longest)
        return nth_wait(wait + JITTER, failures)
