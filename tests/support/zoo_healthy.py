"""The healthy zoo: what looks sick to a simple monitor, and is not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from support.zoo import Cage, Life

FLOOR, GRACE, TREND, ALLOWED = 8, 12, 15, 1000
SETTINGS = {
    "stall_floor_seconds": FLOOR,
    "start_grace_seconds": GRACE,
    "gone_grace_seconds": 5,
    "trend_window_seconds": TREND,
    "lag_allowed_offsets": ALLOWED,
    "restart_budget": 3,
    "restart_window_seconds": 120,
}


class Animal(NamedTuple):
    """``start`` brings the query; ``lived`` tells whether it did what its name says.

    A ``leisurely`` one has, rightly, a window too long for a test to see the end of.
    """

    start: Callable[[Cage], Any]
    lived: Callable[[Life, Any], bool]
    state: str = "running"
    leisurely: bool = False

    @property
    def name(self) -> str:
        return self.start.__name__


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
    return cage.start(cage.backlog(cage.folder("catching_up") / "switch"), "catching_up")


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


def async_tracking_rare(cage):
    """Its log is written more rarely than the floor allows a query to be silent."""
    return cage.start(cage.rate(), "async_tracking_rare", **asynchronous(1500 * FLOOR))


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


# -- what each must be seen to do --------------------------------------------------------------


def commits_on(life, query):
    return len(life.commits) > 5


def never_commits(life, query):
    return not life.commits


def commits_rarely(life, query):
    return life.longest_silence > FLOOR and len(life.commits) > 1


def commits_once(life, query):
    # An hour may begin while it is watched.
    return life.commits in ({0}, {0, 1}) and life.longest_silence > 2 * FLOOR


def finishes_its_batches(life, query):
    return len(life.runs) == 1 and life.commits == set(range(len(life.commits)))


def works_for_longer_than_the_floor(life, query):
    return life.longest_flight > FLOOR and len(life.commits) > 2


def starts_for_longer_than_the_grace(life, query):
    return life.states[0] == "starting" and life.longest_flight > GRACE and len(life.commits) > 1


def has_batches_without_rows(life, query):
    return any(p.numInputRows == 0 and "addBatch" in p.durationMs for p in query.recentProgress)


def keeps_its_watermark(life, query):
    marks = {p.eventTime["watermark"] for p in query.recentProgress if p.numInputRows}
    return marks == {"1970-01-01T00:00:00.000Z"} and commits_on(life, query)


def lags_less_and_less(life, query):
    lags = life.lags
    return len(lags) > 5 and min(lags) > ALLOWED and lags == sorted(lags, reverse=True)


def runs_again_and_again(life, query):
    return len(life.runs) > SETTINGS["restart_budget"]


BEFORE = (
    # Spark's Python process takes long to start: not while everybody does.
    Animal(catching_up, lags_less_and_less),
    Animal(join_of_one_side, keeps_its_watermark),
    Animal(no_data_batches, has_batches_without_rows),
    Animal(older, commits_on),
)
"""Older than the sidecar."""

AFTER = (
    Animal(huge_first_batch, starts_for_longer_than_the_grace, leisurely=True),
    Animal(slow_batches, works_for_longer_than_the_floor, leisurely=True),
    Animal(idle_files, never_commits, "idle"),
    Animal(hourly, commits_once, leisurely=True),
    Animal(every_ten_seconds, commits_rarely, leisurely=True),
    Animal(once, finishes_its_batches, "completed"),
    Animal(available_now, finishes_its_batches, "completed"),
    Animal(restarted, runs_again_and_again),
    Animal(unnamed, commits_on),
    Animal(of_another_session, commits_on),
    Animal(continuous, commits_on),
    Animal(async_tracking, commits_on),
    Animal(async_tracking_rare, commits_on),
    Animal(async_tracking_idle, lambda life, query: 2 in life.commits, "idle"),
    Animal(planned_stop, commits_on, "stopped"),
)
