"""The status of the monitor itself, for people."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .buckets import Buckets
from .published_state import Monitor
from .pushes import Pushes


class Timing(msgspec.Struct, frozen=True):
    """A histogram in three figures; ``p99_seconds`` is the bound of a bucket, an upper limit."""

    count: int
    total_seconds: float
    p99_seconds: float | None


class MonitorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Like ``Monitor``; counts by two labels are nested as receiver -> outcome -> count."""

    heartbeat_timestamp: float | None
    listener_path: str
    listener_registered: bool | None
    reregistrations: int
    missing: tuple[str, ...]
    mailbox_depth: int
    events: Mapping[str, int]
    events_dropped: Mapping[str, int]
    internal_errors: Mapping[str, int]
    probe_age_seconds: float | None
    sources_unread: Mapping[str, str]
    receivers: tuple[str, ...]
    deliveries: Mapping[str, Mapping[str, int]]
    outbox_pending: Mapping[str, int]
    alerts_lost: Mapping[str, Mapping[str, int]]
    circuits_open: Mapping[str, bool]
    spool_problem: str
    file_problems: Mapping[str, str]
    app_name_problem: str
    pushes: Mapping[str, Pushes]
    callback_duration_seconds: Timing
    probe_duration_seconds: Timing


def monitor_status(monitor: Monitor) -> MonitorStatus:
    """Convert the monitor's figures."""
    return MonitorStatus(
        heartbeat_timestamp=monitor.heartbeat_timestamp,
        listener_path=monitor.listener_path,
        listener_registered=monitor.listener_registered,
        reregistrations=monitor.reregistrations,
        missing=monitor.missing,
        mailbox_depth=monitor.mailbox_depth,
        events=monitor.events,
        events_dropped=monitor.events_dropped,
        internal_errors=monitor.internal_errors,
        probe_age_seconds=monitor.probe_age_seconds,
        sources_unread=monitor.sources_unread,
        receivers=monitor.receivers,
        deliveries=_by_receiver(monitor, monitor.deliveries),
        outbox_pending=monitor.outbox_pending,
        alerts_lost=_by_receiver(monitor, monitor.alerts_lost),
        circuits_open=monitor.circuits_open,
        spool_problem=monitor.spool_problem,
        file_problems=monitor.file_problems,
        app_name_problem=monitor.app_name_problem,
        pushes=monitor.pushes,
        callback_duration_seconds=_timing(monitor.callback_duration_seconds),
        probe_duration_seconds=_timing(monitor.probe_duration_seconds),
    )


def _by_receiver(
    monitor: Monitor, counts: Mapping[tuple[str, str], int]
) -> dict[str, dict[str, int]]:
    shown: dict[str, dict[str, int]] = {name: {} for name in monitor.receivers}
    for (receiver, what), count in counts.items():
        shown.setdefault(receiver, {})[what] = count
    return shown


def _timing(buckets: Buckets) -> Timing:
    return Timing(buckets.count, buckets.sum, buckets.bound_of(0.99))
