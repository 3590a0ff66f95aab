"""What readers get: an immutable state, published by one reference assignment."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import cache
from secrets import token_hex

import msgspec

from ..alerting.alert import Alert
from ..alerting.finding import QueryHealth
from ..alerting.lifecycle import Suppressed
from ..listener.state.flow import Flow
from ..listener.state.snapshot import Snapshot


class Timing(msgspec.Struct, frozen=True):
    """A histogram in three figures; ``p99_seconds`` is the bound of a bucket, an upper limit."""

    count: int = 0
    total_seconds: float = 0.0
    p99_seconds: float | None = None


class Buckets(msgspec.Struct, frozen=True):
    """An immutable histogram: adding samples returns a new one.

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

    def timing(self) -> Timing:
        """The same for people: p99 is None without samples, or when it is above all bounds."""
        count = sum(self.counts)
        wanted, seen = max(1, math.ceil(0.99 * count)), 0
        for bound, samples in zip(self.bounds, self.counts, strict=False):
            seen += samples
            if seen >= wanted:
                return Timing(count, self.sum, bound)
        return Timing(count, self.sum)


CALLBACK_BUCKETS = Buckets.of(0.000_01, 0.000_1, 0.001, 0.01, 0.1, 1.0)
"""Bounds for the seconds in a listener callback: an append takes microseconds."""

PROBE_BUCKETS = Buckets.of(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds for the seconds of one probe of Spark."""


class Pushes(msgspec.Struct, frozen=True):
    """What became of the pushes to one target: counts by outcome (``core.states``), and more."""

    outcomes: Mapping[str, int] = {}
    problem: str = ""
    """Why the last push failed; empty after a success."""
    last_success: float | None = None
    """Unix seconds."""


class Monitor(msgspec.Struct, frozen=True, kw_only=True):
    """Figures about the monitor itself, as ``/status`` shows them. Counters only grow."""

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
    receivers: tuple[str, ...] = ()
    deliveries: Mapping[str, Mapping[str, int]] = {}
    """By receiver and outcome."""
    outbox_pending: Mapping[str, int] = {}
    """By receiver."""
    alerts_lost: Mapping[str, Mapping[str, int]] = {}
    """By receiver and reason."""
    circuits_open: Mapping[str, bool] = {}
    """By receiver: whether sending is paused for a while after repeated failures."""
    spool_problem: str = ""
    """Why undelivered alerts would be lost with this driver, although they are to be kept."""
    file_problems: Mapping[str, str] = {}
    """By what the files hold (silences, secrets, http): why what was read last may be old."""
    app_name_problem: str = ""
    """The effect of an app name that other drivers may share."""
    pushes: Mapping[str, Pushes] = {}
    """By target: what became of the pushes of the metrics."""
    callback_duration_seconds: Timing = Timing()
    probe_duration_seconds: Timing = Timing()


Labels = tuple[str, ...]
ALERT_LABELS = ("app", "query", "alertname", "severity")
ENDED_ALERT_SECONDS = 600.0
"""How long an alert that has ended keeps its series, as 0: while a scrape fails, Prometheus cannot
know a series that has gone because the alert ended from one that it did not get."""


def alert_labels(alert: Alert) -> Labels:
    """The values of ``ALERT_LABELS``."""
    return tuple(alert.labels[name] for name in ALERT_LABELS)


def alerts_last_open(
    before: Mapping[Labels, float], alerts: Iterable[Alert], now: float
) -> dict[Labels, float]:
    """When each alert was last open: those that are, and those that ended within ten minutes.

    ``before`` is the previous result, ``alerts`` are open at ``now``; monotonic seconds.
    """
    recent = {labels: at for labels, at in before.items() if now - at < ENDED_ALERT_SECONDS}
    return recent | dict.fromkeys(map(alert_labels, alerts), now)


class Process(msgspec.Struct, frozen=True):
    """The process that runs a sidecar: one that was started again has another id."""

    id: str = ""
    started_at: float = 0.0
    """When its first sidecar started, in Unix seconds."""


@cache
def process_of(pid: int) -> Process:
    """The identity of this process, which has this ``pid``: a fork has an identity of its own."""
    return Process(f"{pid}-{token_hex(6)}", time.time())


class PublishedState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that readers see at one moment; nothing in it changes after publication.

    ``health`` is by the labels of ``snapshot.labels()``, plus expected queries not seen yet;
    ``wall`` is the Unix time of the monotonic ``snapshot.at``.
    """

    app: str
    spark_version: str
    snapshot: Snapshot
    health: Mapping[str, QueryHealth]
    alerts: tuple[Alert, ...]
    monitor: Monitor
    wall: float
    process: Process = Process()
    labels: Mapping[str, str] = {}
    expected: tuple[str, ...] = ()
    suppressed: tuple[Suppressed, ...] = ()
    alerts_last_open: Mapping[Labels, float] = {}
    """See the function of that name."""
    lag_by_partition: bool = False
    flow: Flow = Flow()
    passed: Mapping[str, float] = {}
    """By label: see ``listener/state/end_to_end.py``; monotonic seconds."""
    callback_durations: Buckets = CALLBACK_BUCKETS
    probe_durations: Buckets = PROBE_BUCKETS

    def unix(self, at: float | None) -> float | None:
        """A monotonic time as Unix seconds; None stays None."""
        return None if at is None else self.wall - (self.snapshot.at - at)
