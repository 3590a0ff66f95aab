"""What a rule finds, and the one state a query is in."""

from __future__ import annotations

from enum import Enum

import msgspec


class QueryState(str, Enum):
    """A query's state, worst first."""

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


class Severity(str, Enum):
    """How loudly an alert is told."""

    CRITICAL = "critical"
    WARNING = "warning"


WHOLE_DRIVER = "*"
"""Stands for the query where something concerns all queries of the driver."""


class Finding(msgspec.Struct, frozen=True):
    """One rule found one query sick.

    ``reason`` is one line for a person; ``evidence`` becomes annotations. Findings of one
    name that share a ``cause`` are one incident of the whole driver. ``members`` are the labels
    of the queries without a name that it lists.
    """

    alertname: str
    query: str
    severity: Severity
    state: QueryState
    reason: str
    summary: str
    evidence: dict[str, str]
    cause: str = ""
    members: tuple[str, ...] = ()
