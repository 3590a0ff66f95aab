"""The procedure: rounds with the candidates in changing order, on one running job.

Every order takes its turn, so neither the position in Spark's list nor the neighbour in
front favours a candidate.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from .candidates import NAMES
from .stopwatch import Timed

ORDERS = tuple(permutations(NAMES))
WARM_UP_EVENTS = 50
EVENTS_A_ROUND = 40
STARTS_A_ROUND = 6
PATIENCE_SECONDS = 60.0

Round = dict[str, list[int]]
"""Nanoseconds of each event by candidate; equal indexes are the same event."""

Start = Callable[[SparkSession], StreamingQuery]
Listeners = dict[str, Callable[[], Timed]]


def progress_rounds(spark: SparkSession, start: Start, listeners: Listeners) -> list[Round]:
    """What one progress event costs: one query runs through all rounds."""
    query = start(spark)
    try:
        _progress_round(spark, ORDERS[0], listeners, WARM_UP_EVENTS)
        return [_progress_round(spark, order, listeners, EVENTS_A_ROUND) for order in ORDERS]
    finally:
        query.stop()


def start_rounds(spark: SparkSession, start: Start, listeners: Listeners) -> list[Round]:
    """What ``start()`` waits for ``onQueryStarted``: several short queries in each round."""
    return [_start_round(spark, start, order, listeners) for order in ORDERS]


def _progress_round(
    spark: SparkSession, order: Sequence[str], listeners: Listeners, events: int
) -> Round:
    with _registered(spark, order, listeners) as line:
        _await(line, "progress", events)
    return _paired(line, "progress")


def _start_round(
    spark: SparkSession, start: Start, order: Sequence[str], listeners: Listeners
) -> Round:
    with _registered(spark, order, listeners) as line:
        for count in range(1, STARTS_A_ROUND + 1):
            start(spark).stop()
            _await(line, "terminated", count)
    return _paired(line, "started")


@contextmanager
def _registered(
    spark: SparkSession, order: Sequence[str], listeners: Listeners
) -> Iterator[dict[str, Timed]]:
    line = {name: listeners[name]() for name in order}
    for listener in line.values():
        spark.streams.addListener(listener)  # type: ignore[arg-type]
    yield line
    for listener in line.values():
        spark.streams.removeListener(listener)  # type: ignore[arg-type]


def _await(line: dict[str, Timed], callback: str, events: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(_paired(line, callback)[NAMES[0]]) < events:
        if time.monotonic() > deadline:
            raise TimeoutError(f"Spark sent fewer than {events} {callback} events")
        time.sleep(0.5)


def _paired(line: dict[str, Timed], callback: str) -> Round:
    """The events that every candidate saw; one that came while they were added is left out."""
    seen = {
        name: {t.event: t.nanoseconds for t in listener.timings() if t.callback == callback}
        for name, listener in line.items()
    }
    common = [event for event in seen[NAMES[0]] if all(event in times for times in seen.values())]
    return {name: [times[event] for event in common] for name, times in seen.items()}
