"""The play: the workloads of the driver that Prometheus observes. It runs inside that driver.

Some of its queries fail, each in its own way, and three of those recover. It prints ``healthy``,
``failing`` and ``back`` when the queries are in that state.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.failing_workloads import (
    BRISK,
    SETTINGS,
    Blow,
    crash_loop,
    die,
    lagging,
    offsets_frozen,
    offsets_rewound,
    stopped_and_not_back,
    watermark_stuck,
)
from support.queries import until
from support.spark_harness import SparkHarness

APP = "observed"
HEALTHY, IDLE, SLOW, HUNG, DEAD = "healthy", "idle", "slow", "hung", "dead"
FAILING = {
    ("StreamingQueryFailed", DEAD),
    ("StreamingQueryStopped", "stopped_and_not_back"),
    ("StreamingQueryMissing", "never_started"),
    ("StreamingQueryStalled", HUNG),
    ("StreamingBatchSlow", SLOW),
    ("StreamingOffsetsStalled", "offsets_frozen"),
    ("StreamingOffsetsRewound", "offsets_rewound"),
    ("StreamingQueryLagging", "lagging"),
    ("StreamingQueryFlapping", "crash_loop"),
    ("StreamingWatermarkStuck", "watermark_stuck"),
}
"""Alerts that must fire, by name and query."""
BACK = {
    ("StreamingQueryFailed", DEAD),
    ("StreamingQueryStalled", HUNG),
    ("StreamingBatchSlow", SLOW),
}
"""Alerts that must resolve."""
WORKLOADS = (offsets_frozen, offsets_rewound, lagging, stopped_and_not_back, watermark_stuck)


def play(spark: Any, attach: Callable[..., Any], say: Callable[[str], None], folder: str) -> None:
    """Run until the driver is stopped."""
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "1s")
    harness = SparkHarness(spark, Path(folder))
    # Python sources are slow to start, so these queries start before the sidecar.
    workloads = [bring(harness) for bring in WORKLOADS]
    sidecar = attach(
        spark,
        app_name=APP,
        http_port=0,
        resolve_after_seconds=3,
        # Nothing listens there: these pages are not delivered.
        webhook_url="http://127.0.0.1:9/",
        # StreamingInputMissing stays silent: the hanging batch may have rows.
        queries={HUNG: {"expected_input_seconds": 60}},
        **{**SETTINGS, "expected_queries": ["never_started", HEALTHY]},
    )
    say(sidecar.url)
    harness.start(harness.rate(), HEALTHY, trigger=BRISK)
    start_idle(harness)
    blows = {SLOW: busy(harness), HUNG: Blow(harness), DEAD: Blow(harness, die)}
    for name in (SLOW, DEAD):
        harness.start(harness.rate(), name, blows[name], trigger=BRISK)
    harness.start(remembering(harness), HUNG, working(blows[HUNG]), trigger=BRISK)
    until(lambda: committed(sidecar) == len(WORKLOADS) + 5, "all commit", 60)
    say("healthy")
    for blow in blows.values():
        blow.struck.set()
    for failing in (*workloads, crash_loop(harness)):
        failing.strike()
    until(
        lambda: reported(sidecar) >= FAILING, f"all are reported, not only {reported(sidecar)}", 90
    )
    say("failing")
    until((Path(folder) / "come_back").exists, "the test lets them recover", 90)
    for blow in blows.values():
        blow.struck.clear()
        blow.free.set()
    harness.start(harness.rate(), DEAD, blows[DEAD], trigger=BRISK)
    until(lambda: not reported(sidecar) & BACK, f"they have recovered: {reported(sidecar)}", 60)
    say("back")
    time.sleep(3600)


def start_idle(harness: SparkHarness) -> None:
    """Start a query that commits once and then finds no new data."""
    stream = harness.files(IDLE)
    harness.drop(IDLE, 0, 0)
    harness.start(stream, IDLE, trigger=BRISK)


def remembering(harness: SparkHarness) -> Any:
    """A stream with a watermark and with state, so that both have metrics."""
    return harness.rate().withWatermark("timestamp", "2 seconds").dropDuplicates(["timestamp"])


def working(blow: Blow) -> Callable[[Any, int], None]:
    """A batch function that reads the rows of the batch before it calls ``blow``."""

    def work(batch: Any, number: int) -> None:
        batch.count()
        blow(batch, number)

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
    return {(one.name, one.labels["query"]) for one in sidecar.alerts()}
