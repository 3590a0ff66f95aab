"""Board -> Status: what ``/status`` serves and ``sidecar.snapshot()`` returns. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

import msgspec

from .board import Board, ShownAlert
from .monitor_status import MonitorStatus, monitor_status
from .row import Row, rows


class QueryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One query; ``id`` and ``run_id`` are None for one on the roster that nobody has seen."""

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


class AlertStatus(msgspec.Struct, frozen=True):
    """One firing alert; ``starts_at`` is ISO 8601 in UTC."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: str


class Status(msgspec.Struct, frozen=True):
    """A frozen view of one driver: its queries, its alerts, and the monitor itself."""

    app: str
    spark_version: str
    queries: tuple[QueryStatus, ...]
    alerts: tuple[AlertStatus, ...]
    monitor: MonitorStatus


def status(board: Board) -> Status:
    """Show the board."""
    return Status(
        app=board.app,
        spark_version=board.spark_version,
        queries=tuple(_query(row) for row in rows(board)),
        alerts=tuple(_alert(alert) for alert in board.alerts),
        monitor=monitor_status(board.monitor),
    )


def _query(row: Row) -> QueryStatus:
    query = row.query
    return QueryStatus(
        name=row.label,
        id=query.query_id if query is not None else None,
        run_id=query.run_id if query is not None else None,
        state=row.state,
        reason=row.verdict.reason,
        last_commit_batch=query.last_commit_batch if query is not None else None,
        last_commit_age_seconds=row.last_commit_age_seconds,
        window_seconds=row.verdict.window_seconds,
        batch_in_flight_seconds=row.batch_in_flight_seconds,
        lag_offsets=row.lag_offsets,
        error_class=row.error_class,
    )


def _alert(alert: ShownAlert) -> AlertStatus:
    began = datetime.fromtimestamp(alert.starts_at, tz=timezone.utc)
    return AlertStatus(alert.labels, alert.annotations, began.isoformat(timespec="milliseconds"))
