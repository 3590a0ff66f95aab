"""Healthy workloads that look unhealthy to a simple monitor."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from support.queries import until
from support.spark_harness import Diary, Life

FLOOR, GRACE, TREND, ALLOWED = 12, 20, 16, 1000
SETTINGS = {
    "stall_floor_seconds": FLOOR,
    "start_grace_seconds": GRACE,
    # A busy machine takes seconds to start a query again.
    "gone_grace_seconds": 15,
    "trend_window_seconds": TREND,
    "lag_allowed_offsets": ALLOWED,
    "restart_budget": 3,
}


class HealthyWorkload(NamedTuple):
    """``start`` starts the query; ``lived`` checks whether it did what its name says.

    It ends in one of ``states``.
    """

    start: Callable[[Any], Any]
    lived: Callable[[Life, Any], bool]
    states: tuple[str, ...] = ("running",)

    @property
    def name(self) -> str:
        return self.start.__name__


def all_live(
    workloads: Iterable[HealthyWorkload], diary: Diary, queries: Mapping[str, Any]
) -> None:
    """Wait until each query did what its name says and is in a state of its workload."""
    for workload in workloads:
        life, query = diary[workload.name], queries[workload.name]
        until(lambda: workload.lived(life, query), f"{workload.name} does as its name says")  # noqa: B023
        until(lambda: life.state in workload.states, f"{workload.name} is {workload.states}")  # noqa: B023


def idle_files(harness):
    """No data ever arrives, and its folder is deleted: Spark does not report that."""
    query = harness.start(harness.files("idle_files"), "idle_files")

    def delete():
        if not harness.closing.wait(10):
            shutil.rmtree(harness.folder("idle_files") / "in")

    harness.help(delete)
    return query


def rare_trigger(harness):
    """Spark aligns triggers to multiples since 1970, and of 1,000 days none falls into a test."""
    return harness.start(harness.rate(), "rare_trigger", trigger={"processingTime": "1000 days"})


def available_now(harness):
    """It reads its two files in two batches."""
    stream = harness.files("available_now")
    for number in range(2):
        harness.drop("available_now", number, number)
    return harness.start(stream, "available_now", trigger={"availableNow": True})


def slow_batches(harness):
    """The first batch allows for batches of 20 s; the others are longer than the floor, and work."""
    return harness.start(
        harness.rate(),
        "slow_batches",
        lambda batch, number: work(harness, batch, 1.2 * FLOOR if number else GRACE / 3),
    )


def work(harness, batch, seconds):
    """Run small Spark jobs for ``seconds``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not harness.closing.wait(0.5):
        batch.count()


def no_data_batches(harness):
    """Each file advances the watermark, which triggers one more batch without rows."""
    events = harness.files("no_data_batches").withWatermark("timestamp", "1 second")
    counted = events.groupBy("timestamp").count()

    def feed():
        for number in range(1000):
            harness.drop("no_data_batches", number, 100 * number)
            if harness.closing.wait(6):
                return

    harness.help(feed)
    return harness.start(counted, "no_data_batches")


def join_of_one_side(harness):
    """The watermark rightly waits for the side that has no rows."""
    left = harness.rate().withWatermark("timestamp", "1 second").alias("one")
    right = harness.files("join_of_one_side").withWatermark("timestamp", "1 second").alias("two")
    return harness.start(left.join(right, "timestamp"), "join_of_one_side")


def few_late_rows(harness):
    """One row in a hundred is an hour old, in each batch: the watermark rightly drops it."""
    rows = harness.spark.readStream.format("rate").option("rowsPerSecond", 200).load()
    late = "timestamp - CASE WHEN value % 100 = 7 THEN INTERVAL 1 HOUR ELSE INTERVAL 0 HOUR END"
    events = rows.selectExpr(f"{late} AS at", "value").withWatermark("at", "1 second")
    return harness.start(events.groupBy("at", "value").count(), "few_late_rows")


def event_time_of_the_day(harness):
    """The watermark rightly waits for the next day."""
    events = harness.rate().selectExpr("date_trunc('DAY', timestamp) AS at")
    return harness.start(events.withWatermark("at", "1 second"), "event_time_of_the_day")


def restarted(harness):
    """User code stops and restarts it more often than the restart budget."""
    query = harness.start(harness.rate(), "restarted")

    def restart():
        current = query
        while not harness.closing.wait(5):
            current.stop()
            if not harness.closing.wait(1):
                current = harness.start(harness.rate(), "restarted")

    harness.help(restart)
    return query


def continuous(harness):
    """It sends no events."""
    return harness.start(harness.rate(), "continuous", trigger={"continuous": "1 second"})


def async_tracking_idle(harness):
    """Its last batches never reach its log: the write is due with the next batch."""
    stream = harness.files("async_tracking_idle")
    for number in range(3):
        harness.drop("async_tracking_idle", number, number)
    return harness.start(
        stream,
        "async_tracking_idle",
        asyncProgressTrackingEnabled=True,
        asyncProgressTrackingCheckpointIntervalMs=3_600_000,
    )


def planned_stop(harness):
    return harness.start(harness.rate(), "planned_stop")


# -- what each workload must have done ---------------------------------------------------------


def commits_on(life, query):
    return len(life.commits) > 5


def commits_once(life, query):
    return life.commits == {0} and life.longest_silence > 2 * FLOOR


def works_for_longer_than_the_floor(life, query):
    return life.longest_flight > FLOOR and len(life.commits) > 2


def has_batches_without_rows(life, query):
    return any(
        p["numInputRows"] == 0 and "addBatch" in p["durationMs"] for p in query.recentProgress
    )


def keeps_its_watermark(life, query):
    marks = {p["eventTime"]["watermark"] for p in query.recentProgress if p["numInputRows"]}
    return marks == {"1970-01-01T00:00:00.000Z"} and commits_on(life, query)


def drops_few_rows(life, query):
    batches = [p for p in query.recentProgress if p["numInputRows"] and p["stateOperators"]]
    dropped = [p["stateOperators"][0]["numRowsDroppedByWatermark"] for p in batches]
    return sum(count > 0 for count in dropped) > 5


def has_one_watermark(life, query):
    marks = {p["eventTime"]["watermark"] for p in query.recentProgress if p["numInputRows"]}
    return len(marks - {"1970-01-01T00:00:00.000Z"}) == 1 and commits_on(life, query)


BEFORE = (
    HealthyWorkload(join_of_one_side, keeps_its_watermark),
    HealthyWorkload(no_data_batches, has_batches_without_rows),
    HealthyWorkload(event_time_of_the_day, has_one_watermark),
    HealthyWorkload(few_late_rows, drops_few_rows),
)
"""Started before the sidecar."""

AFTER = (
    HealthyWorkload(slow_batches, works_for_longer_than_the_floor),
    HealthyWorkload(restarted, lambda life, query: len(life.runs) > SETTINGS["restart_budget"]),
    HealthyWorkload(idle_files, lambda life, query: not life.commits, ("idle",)),
    HealthyWorkload(rare_trigger, commits_once),
    HealthyWorkload(
        available_now, lambda life, query: len(life.runs) == 1 and 1 in life.commits, ("completed",)
    ),
    HealthyWorkload(continuous, commits_on),
    HealthyWorkload(async_tracking_idle, lambda life, query: 2 in life.commits, ("idle",)),
    HealthyWorkload(planned_stop, commits_on, ("stopped",)),
)
