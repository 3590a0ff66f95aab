"""How often one post is attempted before the delivery's own schedule takes over."""

from __future__ import annotations

import threading

import tenacity

from ...core.outcomes import DeliveryOutcome
from .receiver import DeliveryError

ATTEMPTS = 3
SHORT_WAIT_SECONDS = 2.0
"""Longer waits are left to the schedule: a wait here would delay the other alerts too."""

_jitter = tenacity.wait_random_exponential(multiplier=0.25, max=SHORT_WAIT_SECONDS)


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
    return max(_jitter(state), getattr(error, "retry_after", None) or 0.0)
