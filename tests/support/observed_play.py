"""What is played in the driver that Prometheus observes; runs inside that driver.

Some of its queries fall ill, each in its own way, and two of those come back. Says ``well``,
``failing`` and ``back`` when it is so.
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
from support.spark_harness import Harness

APP = "observed"
HEALTHY, IDLE, SLOW, HUNG, DEAD = "well", "idle", "slow", "hung", "dead"
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
"""Alerts that must be told, by name and query."""
BACK = {
    ("StreamingQueryFailed", DEAD),
    ("StreamingQueryStalled", HUNG),
    ("StreamingBatchSlow", SLOW),
}
"""Those that must end."""
PATIENTS = (offsets_frozen, offsets_rewound, lagging, stopped_and_not_back, watermark_stuck)


def play(spark: Any, attach: Callable[..., Any], say: Callable[[str], None], folder: str) -> None:
    """Never ends: who started the driver ends it."""
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "1s")
    harness = Harness(spark, Path(folder))
    # Those with Python sources need long to start: they are there before anybody watches.
    patients = [bring(harness) for bring in PATIENTS]
    sidecar = attach(
        spark,
        app_name=APP,
        http_port=0,
        resolve_after_seconds=3,
        # Nobody listens there: these pages are not delivered.
        webhook_url="http://127.0.0.1:9/",
        # It is not reported: while it hangs, its batch may have rows.
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
    until(lambda: committed(sidecar) == len(PATIENTS) + 5, "all commit", 60)
    say("well")
    for blow in blows.values():
        blow.struck.set()
    for failing in (*patients, crash_loop(harness)):
        failing.strike()
    until(lambda: reported(sidecar) >= FAILING, f"all are told, not only {reported(sidecar)}", 90)
    say("failing")
    until((Path(folder) / "come_back").exists, "the test has seen enough", 90)
    for blow in blows.values():
        blow.struck.clear()
        blow.free.set()
    harness.start(harness.rate(), DEAD, blows[DEAD], trigger=BRISK)
    until(lambda: not reported(sidecar) & BACK, f"they are well again: {reported(sidecar)}", 60)
    say("back")
    time.sleep(3600)


def start_idle(harness: Harness) -> None:
    """Commits once, and finds nothing more."""
    stream = harness.files(IDLE)
    harness.drop(IDLE, 0, 0)
    harness.start(stream, IDLE, trigger=BRISK)


def remembering(harness: Harness) -> Any:
    """A stream with a watermark and with state, so that there is something to show of both."""
    return harness.rate().withWatermark("timestamp", "2 seconds").dropDuplicates(["timestamp"])


def working(blow: Blow) -> Callable[[Any, int], None]:
    """Its batches read their rows before the blow may fall."""

    def work(batch: Any, number: int) -> None:
        batch.count()
        blow(batch, number)

    return work


def busy(harness: Harness) -> Blow:
    """Struck, its batch goes on and on, and its tasks finish."""

    def work(batch: Any) -> None:
        while not blow.free.wait(0.2):
            batch.count()

    blow = Blow(harness, work)
    return blow


def committed(sidecar: Any) -> int:
    """How many queries have committed."""
    return sum(query.last_commit_batch is not None for query in sidecar.snapshot().queries)


def reported(sidecar: Any) -> set[tuple[str, str]]:
    """The alerts of querypulse that are open."""
    return {(one.name, one.labels["query"]) for one in sidecar.alerts()}
