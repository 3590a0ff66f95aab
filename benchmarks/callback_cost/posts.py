"""What our queue adds to ``post()``, which a query's own thread calls for each of its events.

The listener bus offers every event to every queue and wakes the thread of each queue that
sleeps. With ours there is one queue more. Turns with it, without it, and with a queue whose
listener does nothing follow each other.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ..common.java_class import compiled
from .stopwatch import OwnQueue

WITHOUT, WITH, EMPTY = "without our queue", "with our queue", "with an empty queue"
ROUNDS = 27
POSTS_A_TURN = 25
PAUSE_MILLISECONDS = 4
BATCHES = 5
_SOURCE = Path(__file__).with_name("Posts.java")

Posted = dict[str, list[list[int]]]
"""Nanoseconds of each post of each turn; equal indexes are turns next to each other."""


class Posts:
    """Posts one and the same event again and again; compiles its class once."""

    def __init__(self, spark: SparkSession, own: OwnQueue) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._java = compiled(jvm, _SOURCE).newInstance()
        self._bus = spark.sparkContext._jsc.sc().listenerBus()
        self._queues: dict[str, Callable[[], AbstractContextManager[None]]] = {
            WITHOUT: nullcontext,
            WITH: lambda: own.fed(own.listener),
            EMPTY: lambda: own.fed(self._java.empty()),
        }

    def measure(self, event: Any) -> Posted:
        """All turns, in changing order."""
        names = list(self._queues)
        found: Posted = {name: [] for name in names}
        for number in range(ROUNDS):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                with self._queues[name]():
                    nanos = self._java.time(self._bus, event, POSTS_A_TURN, PAUSE_MILLISECONDS)
                found[name].append([int(one) for one in nanos.split()])
        return found


def events_a_batch(spark: SparkSession, query: Any) -> float:
    """How many events Spark posts for one batch of a query that runs alone, on average."""
    counter = spark.sparkContext._jsc.sc().listenerBus().metrics().numEventsPosted()
    batch, before = _batch(query), counter.getCount()
    while _batch(query) < batch + BATCHES:
        query._jsq.awaitTermination(20)
    posted: int = counter.getCount() - before
    return posted / (_batch(query) - batch)


def _batch(query: Any) -> int:
    progress = query._jsq.lastProgress()
    return int(progress.batchId()) if progress is not None else -1
