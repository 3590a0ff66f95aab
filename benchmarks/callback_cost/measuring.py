"""The procedure: rounds with the candidates in changing order, on one running job.

Neither the position in Spark's list nor the neighbour in front favours a candidate.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from pyspark.sql import SparkSession

from ..common.difference import balanced
from ..common.session import await_quiet_bus
from .candidates import NAMES, OWN, SHARED
from .stopwatch import OwnQueue, Timed
from .workloads import TimedQuery

ORDERS = balanced(SHARED)
PATIENCE_SECONDS = 120.0

Round = dict[str, list[int]]
"""Nanoseconds of each event by candidate; equal indexes are the same event."""


class Clocks(NamedTuple):
    """Every candidate with its stopwatch: a new listener for each round, one queue for all."""

    shared: Mapping[str, Callable[[], Timed]]
    own: OwnQueue


def progress_rounds(spark: SparkSession, workload: TimedQuery, clocks: Clocks) -> list[Round]:
    """What one progress event costs: one query runs through all rounds."""
    query = workload.start(spark, workload.trigger)
    try:
        _round(spark, ORDERS[0], clocks, workload.warm_up_events)
        rounds = [_round(spark, order, clocks, workload.events) for order in ORDERS]
        said = str(query._jsq.lastProgress().json())
    finally:
        query.stop()
    missing = [word for word in workload.contains if word not in said]
    if missing:
        raise RuntimeError(f"not the query meant: no {missing} in {said}")
    return rounds


def _round(spark: SparkSession, order: Sequence[str], clocks: Clocks, events: int) -> Round:
    # Events that still wait for the shared thread would reach it in this round, and our queue did
    # not get them in this one.
    await_quiet_bus(spark)
    with clocks.own.timed(), _registered(spark, order, clocks) as shared:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(_paired(shared, clocks.own)[OWN]) < events:
            if time.monotonic() > deadline:
                raise TimeoutError(f"Spark sent fewer than {events} progress events")
            time.sleep(0.25)
        return _paired(shared, clocks.own)


@contextmanager
def _registered(
    spark: SparkSession, order: Sequence[str], clocks: Clocks
) -> Iterator[dict[str, Timed]]:
    listeners = {name: clocks.shared[name]() for name in order}
    for listener in listeners.values():
        spark.streams.addListener(listener)  # type: ignore[arg-type]
    yield listeners
    for listener in listeners.values():
        spark.streams.removeListener(listener)  # type: ignore[arg-type]


def _paired(shared: dict[str, Timed], own: OwnQueue) -> Round:
    """The events that every candidate saw; one that came while they were added is left out."""
    seen = {name: clock.timings() for name, clock in shared.items()} | {OWN: own.timings()}
    common = [event for event in seen[OWN] if all(event in times for times in seen.values())]
    return {name: [seen[name][event] for event in common] for name in NAMES}
