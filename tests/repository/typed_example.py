"""A user's job that uses the whole public API; ``make lint`` checks its types, nothing runs it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from querypulse import (
    Alert,
    QueryFailure,
    QueryStatus,
    Settings,
    SettingsError,
    Sidecar,
    Status,
    __version__,
    attach,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def watched(spark: SparkSession) -> Sidecar:
    try:
        return attach(spark, expected_queries=["bronze"], stall_floor_seconds=30)
    except SettingsError as error:
        raise SystemExit(str(error)) from error


def watched_with_a_record(spark: SparkSession) -> Sidecar:
    return attach(spark, settings=Settings(http_port=-1, enabled=False))


def wired_by_hand(spark: SparkSession) -> Sidecar:
    sidecar = Sidecar(Settings(webhook_url="https://hooks.example.com/pages"))
    spark.streams.addListener(sidecar.listener)
    return sidecar


def unhealthy(sidecar: Sidecar) -> list[str]:
    alerts: tuple[Alert, ...] = sidecar.alerts()
    shown = [alert.labels["alertname"] for alert in alerts]
    status: Status = sidecar.snapshot()
    return [*shown, *map(described, status.queries)]


def described(query: QueryStatus) -> str:
    age: float | None = query.last_commit_age_seconds
    return f"{query.name} {query.state} {query.reason} {age}"


def in_a_registry_of_the_job(sidecar: Sidecar) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(sidecar.collector)
    return registry


def until_failure(sidecar: Sidecar) -> tuple[str, str] | None:
    url: str | None = sidecar.url
    sidecar.expect_stop("bronze")
    sidecar.forget("bronze")
    sidecar.silence("bronze*", minutes=30, reason=f"migration {url} {__version__}")
    sidecar.silence("*", until=datetime.now(timezone.utc) + timedelta(hours=1))
    try:
        why = sidecar.await_any_failure(timeout=60.0, on_stall=True)
        if why == "timeout":
            return None
    except QueryFailure as failure:
        return failure.query, failure.reason
    delivered: bool = sidecar.flush(timeout=5.0)
    sidecar.close()
    return ("delivered", "") if delivered else None


def supervised(sidecar: Sidecar, spark: SparkSession) -> None:
    def start() -> StreamingQuery:
        rows = spark.readStream.format("rate").load()
        return rows.writeStream.queryName("bronze").format("noop").start()

    sidecar.supervise({"bronze": start}, restarts=5, within_seconds=600.0)
