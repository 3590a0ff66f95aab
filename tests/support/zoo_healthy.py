"""The healthy zoo: what looks sick to a simple monitor, and is not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from support.sources import Backlog, staged
from support.zoo import Cage, Life

FLOOR, GRACE, TREND = 8, 12, 15
SETTINGS = {
    "stall_floor_seconds": FLOOR,
    "start_grace_seconds": GRACE,
    "gone_grace_seconds": 5,
    "trend_window_seconds": TREND,
    "lag_allowed_offsets": 1000,
    "restart_budget": 3,
    "restart_window_seconds": 120,
}


class Animal(NamedTuple):
    """``start`` brings the query; ``lived`` tells from what was shown whether it did its thing."""

    name: str
    start: Callable[[Cage], Any]
    lived: Callable[[Life], bool]
    state: str


def idle_files(cage):
    """Nothing ever comes."""
    return cage.start(cage.files("idle_files"), "idle_files")


def hourly(cage):
    return cage.start(cage.rate(), "hourly", trigger={"processingTime": "1 hour"})


def every_ten_seconds(cage):
    """Its trigger is rarer than the floor."""
    trigger = {"processingTime": "10 seconds"}
    return cage.start(cage.rate(), "every_ten_seconds", trigger=trigger)


def once(cage):
    return cage.start(cage.rate(), "once", trigger={"once": True})


def available_now(cage):
    stream = cage.files("available_now")
    for number in range(2):
        cage.drop("available_now", number, number)
    return cage.start(stream, "available_now", trigger={"availableNow": True})


def slow_batches(cage):
    """After a first one of 5 s, each batch takes longer than the floor; tasks keep finishing."""
    return cage.start(
        cage.rate(), "slow_batches", lambda batch, number: work(cage, batch, 10 if number else 5)
    )


def huge_first_batch(cage):
    """Longer than floor and start grace, while tasks keep finishing."""
    return cage.start(
        cage.rate(),
        "huge_first_batch",
        lambda batch, number: None if number else work(cage, batch, 20),
    )


def work(cage, batch, seconds):
    """Small Spark jobs for so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not cage.closing.wait(0.5):
        batch.count()


def no_data_batches(cage):
    """Each file moves the watermark, which makes one more batch without any row."""
    events = cage.files("no_data_batches").withWatermark("timestamp", "1 second")
    counted = events.groupBy("timestamp").count()

    def feed():
        for number in range(1000):
            cage.drop("no_data_batches", number, 100 * number)
            if cage.closing.wait(6):
                return

    cage.help(feed)
    return cage.start(counted, "no_data_batches")


def join_of_one_side(cage):
    """The watermark waits, rightly, for the side that has no rows."""
    left = cage.rate().withWatermark("timestamp", "1 second").alias("one")
    right = cage.files("join_of_one_side").withWatermark("timestamp", "1 second").alias("two")
    return cage.start(left.join(right, "timestamp"), "join_of_one_side")


def catching_up(cage):
    """Lag far above what is allowed all the time, and falling."""
    return cage.start(staged(cage.spark, Backlog, cage.folder("catching_up") / "sick"), "catching_up")


def restarted(cage):
    """User code stops it and starts it again, more often than the budget of failures."""
    query = cage.start(cage.rate(), "restarted")

    def restart():
        current = query
        while not cage.closing.wait(8):
            current.stop()
            if not cage.closing.wait(1):
                current = cage.start(cage.rate(), "restarted")

    cage.help(restart)
    return query


def unnamed(cage):
    return cage.start(cage.rate(), None)


def of_another_session(cage):
    return cage.start(cage.rate(cage.spark.newSession()), "of_another_session")


def continuous(cage):
    """No event of it ever comes."""
    return cage.start(cage.rate(), "continuous", trigger={"continuous": "1 second"})


def async_tracking(cage):
    """Its events run ahead of its log, by 4 s."""
    return cage.start(cage.rate(), "async_tracking", **asynchronous(4000))


def async_tracking_idle(cage):
    """Its last batches never reach its log: the write is due with the next batch."""
    stream = cage.files("async_tracking_idle")
    for number in range(3):
        cage.drop("async_tracking_idle", number, number)
    return cage.start(stream, "async_tracking_idle", **asynchronous(3_600_000))


def asynchronous(milliseconds):
    return {
        "asyncProgressTrackingEnabled": True,
        "asyncProgressTrackingCheckpointIntervalMs": milliseconds,
    }


def older(cage):
    return cage.start(cage.rate(), "older")


def planned_stop(cage):
    return cage.start(cage.rate(), "planned_stop")


def commits_on(life):
    return len(life.commits) > 5


BEFORE = (Animal("older", older, commits_on, "running"),)
"""Started before the sidecar."""

AFTER = (
    # In its first batch for long, so it comes first.
    Animal("huge_first_batch", huge_first_batch, lambda life: life.longest_flight > GRACE and life.states[0] == "starting", "running"),
    Animal("slow_batches", slow_batches, lambda life: life.longest_flight > FLOOR and len(life.commits) > 1, "running"),
    Animal("idle_files", idle_files, lambda life: not life.commits, "idle"),
    Animal("hourly", hourly, lambda life: life.commits == {0} and life.longest_silence > 2 * FLOOR, "running"),
    Animal("every_ten_seconds", every_ten_seconds, lambda life: life.longest_silence > FLOOR and len(life.commits) > 1, "running"),
    Animal("once", once, lambda life: len(life.runs) == 1, "completed"),
    Animal("available_now", available_now, lambda life: 1 in life.commits, "completed"),
    Animal("no_data_batches", no_data_batches, commits_on, "running"),
    Animal("join_of_one_side", join_of_one_side, commits_on, "running"),
    Animal("catching_up", catching_up, lambda life: min(life.lags) > 1000 and life.lags == sorted(life.lags, reverse=True), "running"),
    Animal("restarted", restarted, lambda life: len(life.runs) > 3, "running"),
    Animal("unnamed", unnamed, commits_on, "running"),
    Animal("of_another_session", of_another_session, commits_on, "running"),
    Animal("continuous", continuous, commits_on, "running"),
    Animal("async_tracking", async_tracking, commits_on, "running"),
    Animal("async_tracking_idle", async_tracking_idle, lambda life: 2 in life.commits, "idle"),
    Animal("planned_stop", planned_stop, commits_on, "stopped"),
)
