"""The play: the workloads of the driver that Prometheus observes. It runs inside that driver.

Some of its queries fail, each in its own way, and three of those recover. It prints ``healthy``,
``failing`` and ``back`` when the queries are in that state.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.failing_workloads import BRISK, FLOOR, Blow, die
from support.observed import APP, BACK, DEAD, FAILING, HEALTHY, HUNG, IDLE, SLOW
from support.queries import until
from support.spark_harness import SparkHarness


def play(spark: Any, attach: Callable[..., Any], say: Callable[[str], None], folder: str) -> None:
    """Run until the driver is stopped."""
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "1s")
    harness = SparkHarness(spark, Path(folder))
    sidecar = attach(
        spark,
        app_name=APP,
        http_port=0,
        resolve_after_seconds=3,
        freshness_seconds=60,
        # Nothing listens there: these pages are not delivered.
        webhook_url="http://127.0.0.1:9/",
        expected_queries=["never_started", HEALTHY],
        queries={
            "never_started": {"start_grace_seconds": FLOOR},
            SLOW: {"stall_floor_seconds": FLOOR},
            # StreamingInputMissing stays silent: the hanging batch may have rows.
            HUNG: {"stall_floor_seconds": FLOOR, "expected_input_seconds": 60},
        },
    )
    say(sidecar.url)
    harness.start(failure_history(harness), HEALTHY, trigger=BRISK)
    start_idle(harness)
    blows = {SLOW: busy(harness), HUNG: Blow(harness), DEAD: Blow(harness, die)}
    for name in (SLOW, DEAD):
        harness.start(harness.rate(), name, blows[name], trigger=BRISK)
    harness.start(harness.rate(), HUNG, reading(blows[HUNG]), trigger=BRISK)
    until(lambda: committed(sidecar) == 5, "all commit")
    say("healthy")
    for blow in blows.values():
        blow.struck.set()
    until(lambda: reported(sidecar) >= FAILING, "all are reported")
    say("failing")
    until((Path(folder) / "come_back").exists, "the test lets them recover")
    for blow in blows.values():
        blow.struck.clear()
        blow.free.set()
    harness.start(harness.rate(), DEAD, blows[DEAD], trigger=BRISK)
    until(lambda: not reported(sidecar) & BACK, "they have recovered")
    say("back")
    time.sleep(3600)


def start_idle(harness: SparkHarness) -> None:
    """Start a query that commits once and then finds no new data."""
    stream = harness.files(IDLE)
    harness.drop(IDLE, 0, 0)
    harness.start(stream, IDLE, trigger=BRISK)


def failure_history(harness: SparkHarness) -> Any:
    """A stream with a watermark and with state, so that both have metrics."""
    return harness.rate().withWatermark("timestamp", "2 seconds").dropDuplicates(["timestamp"])


def reading(blow: Blow) -> Callable[[Any, int], None]:
    """A batch function that reads the rows of the batch, or calls ``blow`` once that is struck.

    A batch that hangs after some work is slow first, for as long as a busy machine takes for it.
    """

    def work(batch: Any, number: int) -> None:
        if blow.struck.is_set():
            blow(batch, number)
        else:
            batch.count()

    return work


def busy(harness: SparkHarness) -> Blow:
    """A blow that makes a batch run on and on, while its tasks finish."""

    def work(batch: Any) -> None:
        while not blow.free.wait(0.2):
            batch.count()

    blow = Blow(harness, work)
    return blow


def committed(sidecar: Any) -> int:
    """The number of queries that have committed."""
    return sum(query.last_commit_batch is not None for query in sidecar.snapshot().queries)


def reported(sidecar: Any) -> set[tuple[str, str]]:
    """The open alerts of querypulse."""
    return {(alert.name, alert.labels["query"]) for alert in sidecar.alerts()}
