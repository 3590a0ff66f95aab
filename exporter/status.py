"""The status that ``/status`` serves and ``sidecar.snapshot()`` returns. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

import msgspec

from ..listener.checkpoint_place import checkpoint_problem
from .monitor_status import MonitorStatus, monitor_status
from .neighbours import downstream, end_to_end_age_seconds, upstream
from .published_state import PublishedState, ShownAlert, ShownSuppressed
from .row import QueryRow, rows


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
