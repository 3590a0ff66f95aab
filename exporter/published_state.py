"""The exporter's input, an immutable state published by one reference assignment."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from ..listener.flow import Flow
from ..listener.snapshot import Snapshot

# -- pushes -----------------------------------------------------------------------------------
# What became of the pushes to one target, as ``/status`` shows it.


class Pushes(msgspec.Struct, frozen=True):
    """Counts by outcome (``core.outcomes``), the present problem, and the last success."""

    outcomes: Mapping[str, int] = {}
    problem: str = ""
    """Why the last push failed; empty after a success."""
    last_success: float | None = None
    """Unix seconds."""


# -- buckets ----------------------------------------------------------------------------------
# An immutable histogram: adding samples returns a new one.


class Buckets(msgspec.Struct, frozen=True):
    """Samples counted by size.

    ``bounds`` are inclusive upper limits, ascending; ``counts`` has one count for each and one
    more for everything above, not cumulative; ``sum`` is the sum of all samples.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float = 0.0

    @classmethod
    def of(cls, *bounds: float) -> Buckets:
        """A histogram without samples."""
        return cls(bounds, (0,) * (len(bounds) + 1))

    def add(self, samples: Iterable[float]) -> Buckets:
        """Count more samples."""
        counts, total = list(self.counts), self.sum
        for sample in samples:
            counts[bisect_left(self.bounds, sample)] += 1
            total += sample
        return Buckets(self.bounds, tuple(counts), total)

    @property
    def count(self) -> int:
        """The number of samples."""
        return sum(self.counts)

    def bound_of(self, share: float) -> float | None:
        """The smallest bound that at least ``share`` (0 to 1) of the samples stay within.

        None without samples, or when the largest bound is too small.
        """
        wanted, seen = max(1, math.ceil(share * self.count)), 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            seen += count
            if seen >= wanted:
                return bound
        return None


CALLBACK_BUCKETS = Buckets.of(0.000_01, 0.000_1, 0.001, 0.01, 0.1, 1.0)
"""Bounds for the seconds in a listener callback: an append takes microseconds."""

PROBE_BUCKETS = Buckets.of(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds for the seconds of one probe of Spark."""


# -- published state --------------------------------------------------------------------------


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


class QueryHealthView(Protocol):
    """The health of one query: its state, the reason, and its limits."""

    @property
    def state(self) -> str:
        """One of ``core.states.STATES``."""
        ...

    @property
    def reason(self) -> str:
        """One line for people; empty if there is nothing to explain."""
        ...

    @property
    def window_seconds(self) -> float | None:
        """How long the query may go without a commit."""
        ...

    @property
    def lag_allowed_offsets(self) -> float | None:
        """How large its lag may be."""
        ...

    @property
    def restart_budget(self) -> int | None:
        """How often it may fail before it counts as flapping."""
        ...

    @property
    def expected_input_seconds(self) -> float | None:
        """How long it may read no rows; None if no data is expected."""
        ...

    @property
    def ignored(self) -> bool:
        """Whether the settings exclude this query from alerting."""
        ...


class ShownAlert(Protocol):
    """One alert that is firing."""

    @property
    def labels(self) -> Mapping[str, str]:
        """``alertname``, ``app``, ``query`` and ``severity``."""
        ...

    @property
    def annotations(self) -> Mapping[str, str]:
        """``summary``, ``description``, ``reason`` and the evidence."""
        ...

    @property
    def starts_at(self) -> float:
        """Unix seconds."""
        ...


class Monitor(msgspec.Struct, frozen=True, kw_only=True):
    """Figures about the monitor itself. Counters only grow."""

    heartbeat_timestamp: float | None = None
    """Unix seconds of the worker's last round."""
    listener_path: str = ""
    """The event path: ``bus_queue``, ``python_proxy``, ..."""
    listener_registered: bool | None = None
    reregistrations: int = 0
    missing: tuple[str, ...] = ()
    """What the event path and the probe cannot show, a line each."""
    mailbox_depth: int = 0
    events: Mapping[str, int] = {}
    """By event kind."""
    events_dropped: Mapping[str, int] = {}
    """By reason."""
    internal_errors: Mapping[str, int] = {}
    """By the component that contained them."""
    probe_age_seconds: float | None = None
    sources_unread: Mapping[str, str] = {}
    """By query: why a source could not be polled."""
    deliveries: Mapping[tuple[str, str], int] = {}
    """By receiver and outcome."""
    outbox_pending: Mapping[str, int] = {}
    """By receiver."""
    alerts_lost: Mapping[tuple[str, str], int] = {}
    """By receiver and reason."""
    circuits_open: Mapping[str, bool] = {}
    """By receiver: whether sending is paused for a while after repeated failures."""
    receivers: tuple[str, ...] = ()
    spool_problem: str = ""
    """Why undelivered alerts would be lost with this driver, although they are to be kept."""
    file_problems: Mapping[str, str] = {}
    """By what the files hold (silences, secrets, http): why what was read last may be old."""
    pushes: Mapping[str, Pushes] = {}
    """By target: what became of the pushes of the metrics."""
    app_name_problem: str = ""
    """The effect of an app name that other drivers may share."""
    callback_duration_seconds: Buckets = CALLBACK_BUCKETS
    probe_duration_seconds: Buckets = PROBE_BUCKETS


class ShownSuppressed(Protocol):
    """One alert that another firing alert suppresses."""

    @property
    def alert(self) -> ShownAlert:
        """The suppressed alert."""
        ...

    @property
    def by(self) -> ShownAlert:
        """The alert that suppresses it."""
        ...


class PublishedState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that readers see at one moment; nothing in it changes after publication.

    ``health`` is by the labels of ``snapshot.labels()``, plus expected queries not seen yet;
    ``wall`` is the Unix time of the monotonic ``snapshot.at``.
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
    flow: Flow = Flow()
    passed: Mapping[str, float] = {}
    """By label: see ``listener/end_to_end.py``; monotonic seconds."""

    def unix(self, at: float | None) -> float | None:
        """A monotonic time as Unix seconds; None stays None."""
        return None if at is None else self.wall - (self.snapshot.at - at)
