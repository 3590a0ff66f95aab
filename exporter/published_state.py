"""What readers may see: the exporter's own input, published by one reference assignment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from ..listener.snapshot import Snapshot
from .buckets import CALLBACK_BUCKETS, PROBE_BUCKETS, Buckets

STATES = (
    "failed",
    "missing",
    "stopped_unexpectedly",
    "stalled",
    "flapping",
    "rewound",
    "slow",
    "lagging",
    "watermark_stuck",
    "waiting",
    "idle",
    "running",
    "starting",
    "stopped",
    "completed",
)
"""Every state a query can be in, worst first."""

DROP_REASONS = (
    "progress_queue_full",
    "lifecycle_queue_full",
    "failed_in_jvm",
    "connection_lost",
    "progress_mailbox_full",
    "lifecycle_mailbox_full",
    "undecodable",
    "forged",
)
DELIVERY_OUTCOMES = ("delivered", "transient", "misconfigured", "rejected", "failed")
LOSS_REASONS = ("evicted", "expired", "obsolete", "rejected")


class QueryHealthView(Protocol):
    """What was judged of one query: one of ``STATES``, why, and its stall window."""

    @property
    def state(self) -> str:
        """One of ``STATES``."""
        ...

    @property
    def reason(self) -> str:
        """One line for a person, empty where there is nothing to say."""
        ...

    @property
    def window_seconds(self) -> float | None:
        """How long the query may go without a commit."""
        ...

    @property
    def lag_allowed_offsets(self) -> float | None:
        """How far it may be behind."""
        ...

    @property
    def restart_budget(self) -> int | None:
        """How often it may fail before it counts as flapping."""
        ...

    @property
    def expected_input_seconds(self) -> float | None:
        """How long it may read no rows; None where no data has to come."""
        ...

    @property
    def ignored(self) -> bool:
        """Whether the settings say that nothing depends on this query."""
        ...


class ShownAlert(Protocol):
    """One alert that is firing."""

    @property
    def labels(self) -> Mapping[str, str]:
        """``alertname``, ``app``, ``query`` and ``severity``."""
        ...

    @property
    def annotations(self) -> Mapping[str, str]:
        """The story: ``summary``, ``description``, ``reason`` and the evidence."""
        ...

    @property
    def starts_at(self) -> float:
        """Unix seconds."""
        ...


class Monitor(msgspec.Struct, frozen=True, kw_only=True):
    """The monitor's own facts. Counters only grow."""

    heartbeat_timestamp: float | None = None
    """Unix seconds of the worker's last round."""
    listener_path: str = ""
    """How events reach us: ``raw``, ``stock``, ..."""
    listener_registered: bool | None = None
    reregistrations: int = 0
    mailbox_depth: int = 0
    events: Mapping[str, int] = {}
    """By kind of event."""
    events_dropped: Mapping[str, int] = {}
    """By reason."""
    internal_errors: Mapping[str, int] = {}
    """By where they were contained."""
    probe_age_seconds: float | None = None
    sources_unread: Mapping[str, str] = {}
    """By query: why brokers, or what they know of a source, could not be asked."""
    deliveries: Mapping[tuple[str, str], int] = {}
    """By receiver and outcome."""
    outbox_pending: Mapping[str, int] = {}
    """By receiver."""
    alerts_lost: Mapping[tuple[str, str], int] = {}
    """By receiver and reason."""
    circuits_open: Mapping[str, bool] = {}
    """By receiver: whether it is left alone for a while, because it failed again and again."""
    receivers: tuple[str, ...] = ()
    spool_problem: str = ""
    """Why undelivered alerts would not outlive this driver, though they should."""
    app_name_problem: str = ""
    """What the name of this app costs, where other drivers may well have the same."""
    callback_duration_seconds: Buckets = CALLBACK_BUCKETS
    probe_duration_seconds: Buckets = PROBE_BUCKETS


class ShownSuppressed(Protocol):
    """One alert that does not fire because another does."""

    @property
    def alert(self) -> ShownAlert:
        """The one that does not fire."""
        ...

    @property
    def by(self) -> ShownAlert:
        """The one that suppresses it."""
        ...


class PublishedState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything readers may see at one moment; nothing in it changes after publication.

    ``health`` go by the labels of ``snapshot.labels()``, names of the roster that nobody
    has seen included; ``wall`` is the Unix time of the monotonic ``snapshot.at``.
    """

    app: str
    spark_version: str
    snapshot: Snapshot
    health: Mapping[str, QueryHealthView]
    alerts: tuple[ShownAlert, ...]
    monitor: Monitor
    wall: float
    expected: tuple[str, ...] = ()
    suppressed: tuple[ShownSuppressed, ...] = ()
    lag_by_partition: bool = False

    def unix(self, at: float | None) -> float | None:
        """A monotonic moment as Unix seconds; None stays None."""
        return None if at is None else self.wall - (self.snapshot.at - at)
