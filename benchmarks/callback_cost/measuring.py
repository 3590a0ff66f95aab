"""The procedure: rounds with the candidates in changing order, on one running job.

Neither the position in Spark's list nor the neighbour in front favours a candidate.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from ..common.orders import balanced
from .candidates import NAMES
from .stopwatch import Timed
from .workloads import Workload

ORDERS = balanced(NAMES)
WARM_UP_EVENTS = 12
PATIENCE_SECONDS = 60.0

Round = dict[str, list[int]]
"""Nanoseconds of each event by candidate; equal indexes are the same event."""

Listeners = dict[str, Callable[[], Timed]]


def progress_rounds(spark: SparkSession, workload: Workload, listeners: Listeners) -> list[Round]:
    """What one progress event costs: one query runs through all rounds."""
    query = workload.start(spark, workload.trigger)
    try:
        _round(spark, ORDERS[0], listeners, WARM_UP_EVENTS)
        rounds = [_round(spark, order, listeners, workload.events) for order in ORDERS]
        told = query.lastProgress.json
    finally:
        query.stop()
    missing = [word for word in workload.told if word not in told]
    if missing:
        raise RuntimeError(f"not the query meant: no {missing} in {told}")
    return rounds


def _round(spark: SparkSession, order: Sequence[str], listeners: Listeners, events: int) -> Round:
    with _registered(spark, order, listeners) as line:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(_paired(line)[NAMES[0]]) < events:
            if time.monotonic() > deadline:
                raise TimeoutError(f"Spark sent fewer than {events} progress events")
            time.sleep(0.25)
        return _paired(line)


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


def _paired(line: dict[str, Timed]) -> Round:
    """The events that every candidate saw; one that came while they were added is left out."""
    seen = {name: listener.timings() for name, listener in line.items()}
    common = [event for event in seen[NAMES[0]] if all(event in times for times in seen.values())]
    return {name: [times[event] for event in common] for name, times in seen.items()}
