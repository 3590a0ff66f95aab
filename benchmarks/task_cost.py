"""What the sums over finished tasks cost.

``python -m benchmarks.task_cost``. The events of one real stage of a streaming query are repeated:
10,000 tasks a second, a start and an end each, posted to Spark's bus by one thread, without our
queue, with the queue as it was before it summed tasks up, and as it is, in turns. What our listener
needs for an event is timed without the bus.

A poll: the command that brings the sums of so many queries, and what the worker needs to apply a
report of as many runs whose sums have changed, against a report in which none has.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace
from pyspark.sql import SparkSession

from querypulse.listener.foresight.tasks import BatchTasks, QueryTasks, StageSpread, TaskSums
from querypulse.listener.probe_report import ProbedRun, ProbeReport, RunFacts, Trigger
from querypulse.listener.spark import jvm
from querypulse.listener.spark.event_paths import EventQueue
from querypulse.listener.spark.health_listener import HealthListener
from querypulse.listener.state.state import State

from .harness import (
    Row,
    at_most,
    await_quiet_bus,
    compile_java,
    listener_bus,
    report,
    session,
    short,
)

TASKS = 200
POSTS_A_MILLISECOND = 20
TURN_MILLISECONDS = 1500
TURNS = 7
ROUNDS = 400
SIZES = (30, 200, 1000)
POLLS = 15
ALLOWED_MICROSECONDS = 20
WITHOUT = "without our queue"
BEFORE = "with the queue before"
NOW = "with our queue"
OWN_QUEUE = "querypulse"


def main() -> int:
    """Measure, print, write."""
    spark = session("task cost")
    stage = _stage(spark)
    with _listening(spark, sums=False) as (_, before), _listening(spark, sums=True) as (queue, own):
        posts = _posts(spark, stage, {WITHOUT: None, BEFORE: before, NOW: own})
        received: dict[str, list[float]] = {BEFORE: [], NOW: []}
        for _ in range(TURNS):
            for name, listener in ((BEFORE, before), (NOW, own)):
                received[name].append(stage.receive(listener, ROUNDS) / 1e3)
        commands = {size: _commands(stage, queue, own, size) for size in SIZES}
    spark.stop()
    applied = {size: _applied(size) for size in SIZES}
    report("task_cost", __doc__, list(_rows(posts, received, commands, applied)), posts | received)
    return 0


def _rows(
    posts: dict[str, list[float]],
    received: dict[str, list[float]],
    commands: dict[int, dict[str, float]],
    applied: dict[int, dict[str, float]],
) -> Iterator[Row]:
    yield at_most(
        "post() of an event, with our queue", median(posts[NOW]), ALLOWED_MICROSECONDS, " us"
    )
    for name in (BEFORE, WITHOUT):
        yield Row(f"post() of an event, {name}", f"{short(median(posts[name]))} us")
    for name, microseconds in received.items():
        yield Row(f"an event in our listener, {name}", f"{short(median(microseconds))} us")
    for size in SIZES:
        for what, milliseconds in (commands[size] | applied[size]).items():
            yield Row(f"{size} queries: {what}", f"{short(milliseconds)} ms")


def _stage(spark: SparkSession) -> Any:
    """The events of a stage of ``TASKS`` tasks of a streaming query."""
    stage = compile_java(spark, "Tasks").newInstance()
    bus = listener_bus(spark)
    bus.addToQueue(stage, OWN_QUEUE)
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "0-0-0-0-1")
    spark.sparkContext.setLocalProperty("streaming.sql.batchId", "7")
    spark.range(0, TASKS, 1, TASKS).collect()
    await_quiet_bus(spark)
    bus.removeListener(stage)
    if stage.size() != 2 * TASKS + 2:
        raise RuntimeError(f"{stage.size()} events of {TASKS} tasks")
    return stage


@contextmanager
def _listening(spark: SparkSession, *, sums: bool) -> Iterator[tuple[EventQueue, Any]]:
    """Our listener, not on the bus; as it was before, it takes no task to the sums."""
    bus = listener_bus(spark)
    source = jvm.java_source
    with patch.object(
        jvm,
        "java_source",
        source if sums else lambda name: source(name).replace("tasks.receive(event);", ""),
    ):
        queue = EventQueue(spark, HealthListener(capacity=1, start=object, start_on=list))
    others = list(bus.listeners())
    queue.java.listenOnBus(bus)
    (listener,) = (listener for listener in bus.listeners() if listener not in others)
    bus.removeListener(listener)
    yield queue, listener
    queue.release()


def _posts(spark: SparkSession, stage: Any, listeners: dict[str, Any]) -> dict[str, list[float]]:
    """Microseconds of a post in each turn; what nobody counts comes first."""
    bus = listener_bus(spark)
    registry = bus.metrics().metricRegistry()
    dropped = registry.counter(f"queue.{OWN_QUEUE}.numDroppedEvents")
    samples: dict[str, list[float]] = {name: [] for name in listeners}
    for turn in range(-1, TURNS):
        for name, listener in listeners.items():
            if listener is not None:
                bus.addToQueue(listener, OWN_QUEUE)
            nanoseconds = stage.post(bus, POSTS_A_MILLISECOND, TURN_MILLISECONDS)
            await_quiet_bus(spark)
            if listener is not None:
                bus.removeListener(listener)
            if turn >= 0:
                samples[name].append(nanoseconds / 1e3)
    if dropped.getCount():
        raise RuntimeError(f"our queue has dropped {dropped.getCount()} events")
    return samples


def _commands(stage: Any, queue: EventQueue, listener: Any, size: int) -> dict[str, float]:
    """Milliseconds of the command, where the sums of all queries have changed, and of none."""
    changed, unchanged = [], []
    for batch in range(POLLS):
        stage.ofQueries(listener, size, batch)
        changed.append(_milliseconds(queue.tasks))
        unchanged.append(_milliseconds(queue.tasks))
    if len(queue.tasks()) < size:
        raise RuntimeError(f"{len(queue.tasks())} of {size} queries")
    return {
        "a command, all sums have changed": median(changed),
        "a command, no sum has changed": median(unchanged),
    }


def _applied(size: int) -> dict[str, float]:
    """Milliseconds of the worker for a report of so many runs."""
    state = State(0.0)
    trigger = Trigger("ProcessingTime", 1.0)
    facts = [
        RunFacts(f"id-{number}", f"run-{number}", f"query {number}", trigger, "noop", "/cp")
        for number in range(size)
    ]
    tasks = [QueryTasks()] * size
    milliseconds: dict[bool, list[float]] = {True: [], False: []}
    for poll in range(2 * POLLS):
        is_new = bool(poll % 2)
        if is_new:
            tasks = [_tasks(poll) for _ in range(size)]
        runs = tuple(
            ProbedRun(
                own, active=True, message="Waiting for data to arrive", batch_id=poll, tasks=of
            )
            for own, of in zip(facts, tasks, strict=True)
        )
        reported = ProbeReport(float(poll), poll + 0.1, runs)
        milliseconds[is_new].append(_milliseconds(partial(state.apply_probe, reported)))
    return {
        "a report applied, sums have changed": median(milliseconds[True]),
        "a report applied, no sum has changed": median(milliseconds[False]),
    }


def _tasks(poll: int) -> QueryTasks:
    sums = TaskSums(poll, poll * 2.0, poll * 1.0)
    spread = StageSpread(poll, 6, 1.0, 2.0, 3, "host")
    batch = BatchTasks(poll, sums, 0.5, spread)
    return QueryTasks(sums, (replace(batch, batch_id=poll - 1), batch))


def _milliseconds(call: Any) -> float:
    began = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - began)


if __name__ == "__main__":
    sys.exit(main())
