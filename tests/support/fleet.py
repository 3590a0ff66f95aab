"""A simulated fleet: what Prometheus scrapes of many drivers, from one server on loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator

from querypulse.core.states import STATES

from .http_double import DoubleHandler, HttpDouble, RecordedRequest, reply

OUTAGE = "outage at kafka://b1:9092"
BUG = "failed: ValueError"
FAILED, STALLED = "StreamingQueryFailed", "StreamingQueryStalled"


class Fleet(HttpDouble):
    """Drivers ``app0``, ``app1`` ... with queries ``q0``, ``q1`` ...; odd ones read from broker b1.

    During the ``outage``, queries of ``app1``, ``app3`` ... fail or stall, one cause for all, and
    ``q0`` of ``app0`` fails for a reason of its own. All queries of ``app2``, ``app4`` ... but
    ``q0`` read what ``q0`` of ``app1`` writes.
    """

    def __init__(self, drivers: int, queries: int) -> None:
        super().__init__()
        self.drivers, self.queries = drivers, queries
        self.outage_at: float | None = None

    @property
    def urls(self) -> list[str]:
        return [f"{self.url}/{number}" for number in range(self.drivers)]

    def handle(self, request: RecordedRequest, handler: DoubleHandler) -> None:
        driver = int(request.path.strip("/").partition("?")[0])
        text = "\n".join([*self._figures(driver), ""])
        reply(200, {"Content-Type": "text/plain"}, text.encode())(handler)

    def alert_of(self, driver: int, query: int) -> tuple[str, str] | None:
        """The name and the cause of the alert of a query in an outage."""
        if driver % 2:
            return (STALLED if query % 2 else FAILED), OUTAGE
        return (FAILED, BUG) if (driver, query) == (0, 0) else None

    def _figures(self, driver: int) -> Iterator[str]:
        app = f'app="app{driver}"'
        for name in ("heartbeat", "expected"):
            yield f"querypulse_driver_{name}_timestamp_seconds{{{app}}} {time.time()}"
        for query in range(self.queries):
            yield from self._of_query(driver, query, f'{app},query="q{query}"')

    def _of_query(self, driver: int, query: int, labels: str) -> Iterator[str]:
        alert = None if self.outage_at is None else self.alert_of(driver, query)
        state = "idle" if alert is None else "failed"
        for name in STATES:
            yield f'spark_streaming_query_state{{{labels},state="{name}"}} {int(name == state)}'
        is_fed = driver % 2 == 0 and driver > 0 and query > 0
        source = 'kafka://b1:9092",dataset_name="orders'
        if is_fed:
            source = 's3://lake",dataset_name="/bronze/q0'
        table = f"/bronze/q{query}" if driver == 1 else f"/{driver}/q{query}"
        for side, dataset in (("input", source), ("output", f's3://lake",dataset_name="{table}')):
            of = f'{labels},direction="{side}",dataset_namespace="{dataset}"'
            yield f"spark_streaming_query_dataset{{{of}}} 1"
        if alert is None:
            return
        name, cause = alert
        of = f'{labels},alertname="{name}"'
        yield f'spark_streaming_query_alert{{{of},severity="critical"}} 1'
        began = f'spark_streaming_query_alert_start_timestamp_seconds{{{of},severity="critical"}}'
        yield f"{began} {self.outage_at}"
        yield f'spark_streaming_query_alert_cause{{{of},cause="{cause}"}} 1'
