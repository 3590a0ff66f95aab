"""The states of a query and the outcomes of a delivery, by the names that everything shows."""

from __future__ import annotations

from enum import Enum


class QueryState(str, Enum):
    """The state of a query, most severe first."""

    FAILED = "failed"
    MISSING = "missing"
    STOPPED_UNEXPECTEDLY = "stopped_unexpectedly"
    STALLED = "stalled"
    FLAPPING = "flapping"
    REWOUND = "rewound"
    SLOW = "slow"
    LAGGING = "lagging"
    WATERMARK_STUCK = "watermark_stuck"
    WAITING = "waiting"
    IDLE = "idle"
    RUNNING = "running"
    STARTING = "starting"
    STOPPED = "stopped"
    COMPLETED = "completed"


STATES = tuple(state.value for state in QueryState)
"""Every state a query can be in, most severe first."""


class DeliveryOutcome(str, Enum):
    """The outcome of an attempt; it decides what happens next."""

    DELIVERED = "delivered"
    TRANSIENT = "transient"
    """An outage: try again soon."""
    MISCONFIGURED = "misconfigured"
    """A wrong token, address or certificate, or 410: keep it and try again slowly until that is
    fixed."""
    REJECTED = "rejected"
    """The receiver refuses this message for good: do not send it again."""


FAILED = "failed"
"""Counts an unexpected exception of a receiver."""
OUTCOMES = (*(outcome.value for outcome in DeliveryOutcome), FAILED)
"""Every outcome that is counted."""
LOSS_REASONS = ("evicted", "expired", "obsolete", "rejected")
"""Why an alert is lost: no room; ended a day ago; a warning that ended unsent; a message that was
refused.
"""
