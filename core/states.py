"""The states of a query, as alerts, metrics, ``/status`` and dashboards name them."""

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
