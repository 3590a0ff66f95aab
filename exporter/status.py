"""The status that ``/status`` serves, of the queries and of the monitor, and readiness."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

import msgspec

from ..listener.checkpoints import checkpoint_problem
from .published_state import Buckets, Monitor, PublishedState, Pushes, ShownAlert, ShownSuppressed
from .query_row import QueryRow, downstream, end_to_end_age_seconds, rows, upstream

# -- monitor status ---------------------------------------------------------------------------
# The status of the monitor itself, for people.


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


# -- status -----------------------------------------------------------------------------------
# The status that ``/status`` serves and ``sidecar.snapshot()`` returns.


class QueryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One query; ``id`` and ``run_id`` are None for an expected query that was never seen.

    Times are ISO 8601 in UTC, ages and durations are seconds. Unknown values are None.
    """

    name: str
    """Its label: its name, else the first 8 characters of its id."""
    id: str | None
    run_id: str | None
    state: str
    reason: str
    last_commit_batch: int | None
    last_commit_age_seconds: float | None
    window_seconds: float | None
    batch_in_flight_seconds: float | None
    lag_offsets: float | None
    error_class: str | None
    expected: bool
    """Whether it is an expected query."""
    ignored: bool
    """Whether the settings exclude it from alerting."""
    started_at: str | None
    """When its current run began, or was first seen."""
    restarts: int
    trigger: str | None
    sink: str | None
    batch_in_flight: int | None
    """The id of the batch in flight."""
    last_idle_age_seconds: float | None
    """Seconds since its run was last seen idle."""
    recent_batch_seconds: tuple[float, ...]
    """Durations of the last batches, at most 30, the newest last."""
    input_rows_per_second: float | None
    processed_rows_per_second: float | None
    """From Spark's progress of the last batch; None once that is older than the stall window."""
    lag_seconds: float | None
    """The age of the first unread record."""
    last_input_age_seconds: float | None
    """Seconds since its run last read rows; None before the first."""
    checkpoint_problem: str | None
    """Why its next start may not find its checkpoint; empty if nothing is wrong."""
    upstream: tuple[str, ...] = ()
    """The queries that write what it reads, at most 50."""
    downstream: tuple[str, ...] = ()
    """The queries that read what it writes, at most 50."""
    end_to_end_age_seconds: float | None = None
    """The age of the newest data that has passed from the first sources into its table."""
    supervised: SupervisedStatus | None = None
    """None unless the application lets querypulse restart it."""


class SupervisedStatus(msgspec.Struct, frozen=True):
    """How ``supervise`` restarts a query."""

    restarts: int
    next_start_seconds: float | None
    """Seconds until its next start is due, negative once that is overdue; None while it runs."""
    failure: str
    """Why it was started again last; empty before the first failure."""
    given_up: str
    """Why it is not restarted any more; empty while it is."""


class AlertStatus(msgspec.Struct, frozen=True):
    """One firing alert; ``starts_at`` is ISO 8601 in UTC."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: str


class SuppressedStatus(msgspec.Struct, frozen=True):
    """One suppressed alert, and the alert that suppresses it."""

    alertname: str
    query: str
    reason: str
    by_alertname: str
    by_query: str


class Status(msgspec.Struct, frozen=True):
    """The status of one driver at one moment: its queries, its alerts and the monitor itself.

    ``at`` is that moment, ISO 8601 in UTC.
    """

    app: str
    spark_version: str
    queries: tuple[QueryStatus, ...]
    alerts: tuple[AlertStatus, ...]
    monitor: MonitorStatus
    at: str
    suppressed: tuple[SuppressedStatus, ...] = ()


def status(published: PublishedState) -> Status:
    """Convert the published state."""
    return Status(
        app=published.app,
        spark_version=published.spark_version,
        queries=tuple(_query(row) for row in rows(published)),
        alerts=tuple(_alert(alert) for alert in published.alerts),
        monitor=monitor_status(published.monitor),
        at=_iso(published.wall),
        suppressed=tuple(_suppressed(one) for one in published.suppressed),
    )


def _suppressed(one: ShownSuppressed) -> SuppressedStatus:
    return SuppressedStatus(
        alertname=one.alert.labels["alertname"],
        query=one.alert.labels["query"],
        reason=one.alert.annotations.get("reason", ""),
        by_alertname=one.by.labels["alertname"],
        by_query=one.by.labels["query"],
    )


def _query(row: QueryRow) -> QueryStatus:
    query, facts, progress = row.query, row.facts, row.live_progress
    began = row.published.unix(query.started_at) if query is not None else None
    return QueryStatus(
        name=row.label,
        id=query.query_id if query is not None else None,
        run_id=query.run_id if query is not None else None,
        state=row.state,
        reason=row.health.reason,
        last_commit_batch=query.last_commit_batch if query is not None else None,
        last_commit_age_seconds=row.last_commit_age_seconds,
        window_seconds=row.health.window_seconds,
        batch_in_flight_seconds=row.batch_in_flight_seconds,
        lag_offsets=row.lag_offsets,
        error_class=row.error_class,
        expected=row.is_expected,
        ignored=row.health.ignored,
        started_at=_iso(began) if began is not None else None,
        restarts=row.totals.restarts,
        trigger=str(facts.trigger) if facts is not None else None,
        sink=facts.sink if facts is not None else None,
        batch_in_flight=row.batch_in_flight,
        last_idle_age_seconds=row.last_idle_age_seconds,
        recent_batch_seconds=query.recent_batches if query is not None else (),
        input_rows_per_second=progress.input_rows_per_second if progress is not None else None,
        processed_rows_per_second=(
            progress.processed_rows_per_second if progress is not None else None
        ),
        lag_seconds=row.lag_seconds,
        last_input_age_seconds=row.last_input_age_seconds,
        checkpoint_problem=checkpoint_problem(facts.checkpoint) if facts is not None else None,
        upstream=upstream(row),
        downstream=downstream(row),
        end_to_end_age_seconds=end_to_end_age_seconds(row),
        supervised=_supervised(row),
    )


def _supervised(row: QueryRow) -> SupervisedStatus | None:
    one, now = row.supervised, row.published.snapshot.at
    if one is None:
        return None
    due = None if one.due_at is None else one.due_at - now
    return SupervisedStatus(one.restarts, due, one.failure, one.given_up)


def _alert(alert: ShownAlert) -> AlertStatus:
    return AlertStatus(alert.labels, alert.annotations, _iso(alert.starts_at))


def _iso(unix: float) -> str:
    return datetime.fromtimestamp(unix, tz=timezone.utc).isoformat(timespec="milliseconds")


# -- readiness --------------------------------------------------------------------------------
# Whether all queries are healthy, for ``/readyz``.


UNREADY = frozenset(
    {"failed", "missing", "stopped_unexpectedly", "stalled", "flapping", "rewound", "starting"}
)
"""States in which a query does not work."""


class Reason(msgspec.Struct, frozen=True):
    """Why it is not ready; ``query`` is None when the monitor itself is not ready."""

    query: str | None
    state: str
    reason: str


class Readiness(msgspec.Struct, frozen=True):
    """``ready``, or the reasons."""

    ready: bool
    reasons: tuple[Reason, ...] = ()


def readiness(published: PublishedState | None) -> Readiness:
    """Check every known or expected query that is not ignored; None is not ready."""
    if published is None:
        return Readiness(False, (Reason(None, "starting", "nothing has been evaluated yet"),))
    unhealthy = (row for row in rows(published) if row.state in UNREADY and not row.health.ignored)
    reasons = tuple(_reason(row) for row in unhealthy)
    return Readiness(not reasons, reasons)


def _reason(row: QueryRow) -> Reason:
    return Reason(row.label, row.state, row.health.reason)
