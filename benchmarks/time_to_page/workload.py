"""Queries that run for a few batches and then fail or hang, each at a random time."""

import math
import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ..common.session import rows
from .page_receiver import DEATH

HEALTHY_SECONDS = 4.5
"""How long a query runs before it fails or hangs."""
TRIGGER_MILLISECONDS = (1200, 1800)
LEAST_BATCHES = 2
HUNG_SECONDS = 11.0
KEPT_EVERY = 5
"""One of this many hung queries hangs to the end, for candidates that report slowly."""


class FailingQuery:
    """The ``foreachBatch`` of one query: from ``due_at`` on, it does what ``alertname`` reports.

    ``met_at`` is when it failed or its hung batch began, in monotonic seconds; infinite before.
    """

    def __init__(self, name: str, alertname: str, due_at: float, *, kept: bool) -> None:
        self.name = name
        self.alertname = alertname
        self.due_at = due_at
        self.kept = kept
        self.met_at = math.inf
        self.free = threading.Event()
        self._batches = 0
        self._query: Any = None

    def start(self, spark: SparkSession) -> None:
        """Start the query before ``due_at``."""
        milliseconds = random.randint(*TRIGGER_MILLISECONDS)
        trigger = f"{milliseconds} milliseconds"
        self._query = writer(spark, self.name, trigger).foreachBatch(self).start()

    def __call__(self, _: Any, __: int) -> None:
        left = self.due_at - time.monotonic()
        self._batches += 1
        if left > TRIGGER_MILLISECONDS[1] / 1000 or self._batches <= LEAST_BATCHES:
            return
        if self.alertname == DEATH:
            # Triggers and probes run at fixed intervals; the failure must not follow them.
            time.sleep(max(0.0, left))
            self.met_at = time.monotonic()
            raise RuntimeError("files were added by a concurrent update")
        if math.isinf(self.met_at):
            self.met_at = time.monotonic()
            self.free.wait(None if self.kept else HUNG_SECONDS)
            threading.Thread(target=self._query.stop).start()


def failing_queries(
    phase: str, began: float, spans: dict[str, tuple[int, float]]
) -> list[FailingQuery]:
    """Queries for each alert: ``spans`` has their number and the seconds to spread them over."""
    return [
        FailingQuery(
            f"{phase}-{alertname}-{number}",
            alertname,
            began + HEALTHY_SECONDS + random.uniform(0, seconds),
            kept=number % KEPT_EVERY == 0,
        )
        for alertname, (count, seconds) in spans.items()
        for number in range(count)
    ]


def run_all(spark: SparkSession, failing: Sequence[FailingQuery]) -> None:
    """Start each query in time; return when all have failed or hang."""
    for query in sorted(failing, key=lambda query: query.due_at):
        time.sleep(max(0.0, query.due_at - HEALTHY_SECONDS - time.monotonic()))
        query.start(spark)
    deadline = time.monotonic() + 30
    while waiting := [query.name for query in failing if math.isinf(query.met_at)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing happened to {waiting}")
        time.sleep(0.1)


def bystanders(spark: SparkSession, count: int) -> list[StreamingQuery]:
    """Queries that stay healthy."""
    names = [f"healthy-{number}" for number in range(count)]
    return [writer(spark, name, "1 second").format("noop").start() for name in names]


def writer(spark: SparkSession, name: str, trigger: str) -> Any:
    """A writer of a query that has new rows at every trigger."""
    return rows(spark).writeStream.queryName(name).trigger(processingTime=trigger)
