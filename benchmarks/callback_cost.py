"""What one progress event costs on Spark's own threads.

``python -m benchmarks.callback_cost``. PySpark's listener, the peer and the empty proxy are called
on the one thread that all streaming listeners share. They are registered in one job and called
one after another for each event, in every order, each timed in the JVM with the way to Python
and back. Before each call a pause, not counted, lets others' after-work end: calls start cold.

Nothing of querypulse runs there. What it adds is one more queue that ``post()`` offers every event
to, on the thread of the query: timed with that queue, without it, and with a queue whose listener
does nothing, in turns. All of this with an idle interpreter, and with one Python thread that only
computes: any other then waits for the interpreter's lock, 5 ms at a time.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from itertools import permutations
from statistics import median
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.functions import window
from pyspark.sql.streaming.query import StreamingQuery

from querypulse.listener.spark.event_paths import EventQueue
from querypulse.listener.spark.health_listener import HealthListener

from .candidates import NOTHING, OURS, PEER, STOCK, NothingListener, StockListener, peer
from .harness import (
    Row,
    at_least,
    at_most,
    await_quiet_bus,
    compile_java,
    difference,
    listener_bus,
    report,
    rows_of,
    session,
    short,
)
from .receiver import receiving

SETTLE_MILLISECONDS = 10
PATIENCE_SECONDS = 120.0
OWN_QUEUE = "querypulse"
"""As in ``EventQueue.java``."""
WITHOUT = "without our queue"
WITH = "with our queue"
EMPTY = "with an empty queue"
POST_ROUNDS = 27
POSTS_A_TURN = 25
POST_PAUSE_MILLISECONDS = 4
BATCHES = 5
ALLOWED_MICROSECONDS = 20
BELOW_STOCK = 500
LEAST_MICROSECONDS = 1.0
"""Ratios take a smaller difference for this: chance alone makes two medians differ by it."""

Samples = dict[str, list[float]]
"""Microseconds by candidate."""


class Interpreter(NamedTuple):
    """``trigger`` leaves time for all: PySpark needs 50 ms an event, and seconds if it is busy."""

    name: str
    trigger: str
    warm_up_events: int
    events: int


INTERPRETERS = (
    Interpreter("idle", "350 milliseconds", 6, 7),
    Interpreter("busy", "5 seconds", 1, 1),
)


def main() -> int:
    """Measure, print, write."""
    spark = session("callback cost")
    rows: list[Row] = []
    samples: dict[str, Samples] = {}
    with receiving() as gateway, _own_listener(spark) as own:
        listeners = {STOCK: StockListener(), PEER: peer(gateway.url), NOTHING: NothingListener()}
        for interpreter in INTERPRETERS:
            with _interpreter(interpreter.name):
                callbacks, event = _time_callbacks(spark, listeners, interpreter)
                posts = _time_posts(spark, own, event)
            samples[interpreter.name] = callbacks | posts
            rows += _rows(interpreter.name, callbacks, posts)
        of_batch = _events_a_batch(spark)
        if not gateway.posts():
            raise RuntimeError("the peer has pushed nothing")
    spark.stop()
    added, _ = difference(samples["idle"][WITH], samples["idle"][WITHOUT])
    every = f"idle: all {of_batch:.0f} events of a batch, added to post()"
    rows.append(Row(every, f"{short(of_batch * added)} us"))
    report("callback_cost", __doc__, rows, samples)
    return 0


def _rows(state: str, callbacks: Samples, posts: Samples) -> Iterator[Row]:
    added, margin = difference(posts[WITH], posts[WITHOUT])
    row = at_most(f"{state}: {OURS}, added to post()", added, ALLOWED_MICROSECONDS, " us")
    yield row._replace(measured=f"{row.measured} (± {short(margin)})")
    least, margin = difference(posts[EMPTY], posts[WITHOUT])
    nothing = f"{state}: a queue that does nothing, added to post()"
    yield Row(nothing, f"{short(least)} us (± {short(margin)})")
    medians = {name: median(times) for name, times in callbacks.items()}
    for name, microseconds in sorted(medians.items(), key=lambda item: item[1]):
        yield Row(f"{state}: {name}", f"{short(microseconds / 1e3)} ms")
    ours = max(added, LEAST_MICROSECONDS)
    yield at_least(f"{state}, stateful: {STOCK} / {OURS}", medians[STOCK] / ours, BELOW_STOCK, "x")
    for what, ratio in (
        (f"{STOCK} / {NOTHING}", medians[STOCK] / medians[NOTHING]),
        (f"{NOTHING} / {OURS}", medians[NOTHING] / ours),
        (f"{PEER} / {OURS}", medians[PEER] / ours),
    ):
        yield Row(f"{state}, stateful: {what}", f"{short(ratio)}x")


class _Timed:
    """A listener for ``addListener``: a candidate with a stopwatch around it, in the JVM.

    A clock in Python would add the time of its own call, and wait for the interpreter's lock
    behind threads that the candidate woke but does not wait for.
    """

    def __init__(self, spark: SparkSession, candidate: Any, stopwatch: Any) -> None:
        self._spark = spark
        self._candidate = candidate
        self._stopwatch = stopwatch

    @cached_property
    def _jlistener(self) -> Any:
        # Late, as in PySpark itself: addListener first starts the callback server.
        gateway: Any = self._spark.sparkContext._gateway
        arguments = gateway.new_array(gateway.jvm.Object, 2)
        arguments[0] = self._candidate._jlistener
        arguments[1] = SETTLE_MILLISECONDS
        return self._stopwatch.getConstructors()[0].newInstance(arguments)

    def microseconds(self) -> list[float]:
        return [int(nanoseconds) / 1e3 for nanoseconds in self._jlistener.read().split()]


def _time_callbacks(
    spark: SparkSession, listeners: dict[str, Any], interpreter: Interpreter
) -> tuple[Samples, Any]:
    """What one progress event costs each, and the last event: one query runs through all orders.

    Neither the position in Spark's list nor the neighbour in front favours a candidate.
    """
    stopwatch = compile_java(spark, "Stopwatch")
    samples: Samples = {name: [] for name in listeners}
    query = _start_stateful(spark, interpreter.trigger)
    orders = list(permutations(listeners))
    for number, order in enumerate([orders[0], *orders]):
        # Events that still wait for the shared thread would reach it in this round.
        await_quiet_bus(spark)
        timed = {name: _Timed(spark, listeners[name], stopwatch) for name in order}
        for listener in timed.values():
            spark.streams.addListener(listener)
        _await_events(timed.values(), interpreter.events if number else interpreter.warm_up_events)
        for name, listener in timed.items():
            if number:
                samples[name] += listener.microseconds()
            spark.streams.removeListener(listener)
    event = timed[STOCK]._jlistener.last()
    if "stateOnCurrentVersionSizeBytes" not in str(query._jsq.lastProgress().json()):
        raise RuntimeError("the query has no state")
    query.stop()
    return samples, event


def _await_events(listeners: Sequence[_Timed], count: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(len(listener.microseconds()) < count for listener in listeners):
        if time.monotonic() > deadline:
            raise TimeoutError(f"Spark sent fewer than {count} progress events")
        time.sleep(0.25)


def _time_posts(spark: SparkSession, own: Any, event: Any) -> Samples:
    """The median post of each turn; equal indexes are turns next to each other."""
    bus = listener_bus(spark)
    poster = compile_java(spark, "Posts").newInstance()

    @contextmanager
    def fed(listener: Any) -> Iterator[None]:
        bus.addToQueue(listener, OWN_QUEUE)
        yield
        bus.removeListener(listener)

    queues: dict[str, Callable[[], AbstractContextManager[None]]] = {
        WITHOUT: nullcontext,
        WITH: lambda: fed(own),
        EMPTY: lambda: fed(poster.empty()),
    }
    names = list(queues)
    samples: Samples = {name: [] for name in names}
    for number in range(POST_ROUNDS):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            with queues[name]():
                posts = poster.time(bus, event, POSTS_A_TURN, POST_PAUSE_MILLISECONDS)
            samples[name].append(median(int(nanoseconds) / 1e3 for nanoseconds in posts.split()))
    return samples


@contextmanager
def _own_listener(spark: SparkSession) -> Iterator[Any]:
    """Our listener, not on the bus yet; a thread takes and decodes what it receives."""
    bus = listener_bus(spark)
    ended = threading.Event()
    queue = EventQueue(spark, HealthListener(capacity=1, start=object, start_on=list))
    before = list(bus.listeners())
    queue.java.listenOnBus(bus)
    (listener,) = (listener for listener in bus.listeners() if listener not in before)
    bus.removeListener(listener)

    def drain() -> None:
        while not ended.is_set():
            queue.take(1.0)

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    yield listener
    ended.set()
    reader.join()
    queue.release()
    if any(queue.drops.values()):
        raise RuntimeError(f"events were lost: {queue.drops}")


@contextmanager
def _interpreter(state: str) -> Iterator[None]:
    """Keep this process's interpreter idle or ``busy``."""
    ended = threading.Event()

    def compute() -> None:
        number = 0
        while not ended.is_set():
            number += 1

    computing = threading.Thread(target=compute, daemon=True)
    if state == "busy":
        computing.start()
    yield
    ended.set()


def _start_stateful(spark: SparkSession, trigger: str) -> StreamingQuery:
    """A watermark and counts per window: events with a state operator in them."""
    late = rows_of(spark).withWatermark("timestamp", "5 seconds")
    counts = late.groupBy(window("timestamp", "2 seconds")).count()
    query = counts.writeStream.format("noop").queryName("stateful")
    return query.trigger(processingTime=trigger).start()


def _events_a_batch(spark: SparkSession) -> float:
    """How many events Spark posts for one batch of a query that runs alone, on average."""
    query = _start_stateful(spark, INTERPRETERS[0].trigger)
    counter = listener_bus(spark).metrics().numEventsPosted()
    batch = _batch(query)
    before = counter.getCount()
    while _batch(query) < batch + BATCHES:
        query._jsq.awaitTermination(20)
    posted: int = counter.getCount() - before
    events = posted / (_batch(query) - batch)
    query.stop()
    return events


def _batch(query: StreamingQuery) -> int:
    progress = query._jsq.lastProgress()
    return int(progress.batchId()) if progress is not None else -1


if __name__ == "__main__":
    sys.exit(main())
