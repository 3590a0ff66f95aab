"""Workloads that fail: each fails in its own way, at a moment that it reports."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

from pyspark.java_gateway import ensure_callback_server_started
from support.queries import Boom, until
from support.sources import FrozenReader, HangingReader, RewoundReader, staged
from support.spark_harness import SparkHarness

FLOOR = 15
SHORT = {
    "stall_floor_seconds": FLOOR,
    "start_grace_seconds": 20,
    "gone_grace_seconds": 4,
    "trend_window_seconds": 15,
}
WAIT_FOR_A_LIMIT = (
    "hangs_*",
    "*_stops",
    "overflowed",
    "offsets_*",
    "lagging",
    "watermark_stuck",
    "drops_late_rows",
)
QUERIES = dict.fromkeys(WAIT_FOR_A_LIMIT, SHORT)
"""Short limits only for what exceeds them: a busy machine delays the other queries by seconds."""
BRISK = {"processingTime": "500 milliseconds"}
AT_ONCE = {"processingTime": "0 seconds"}
"""Without an interval no batch outlasts it, however busy the machine becomes."""
STEADY = {"processingTime": "2 seconds"}
"""Long enough for a batch that reads from Python."""
TRIES = 4
STARTS = 8


class ExpectedPage(NamedTuple):
    """A page that must arrive, with a reason that begins so."""

    alertname: str
    query: str
    reason: str = ""


class Failing(NamedTuple):
    """A query that is healthy until ``strike``, or does not exist until then."""

    query: Any
    strike: Callable[[], object]
    reported: tuple[ExpectedPage, ...]


class Blow:
    """A ``foreachBatch`` function that hangs, or calls ``then``, once it is struck."""

    def __init__(self, harness: SparkHarness, then: Callable[[Any], None] | None = None) -> None:
        self.struck = threading.Event()
        self.free = threading.Event()
        self.began = threading.Event()
        self._then = then or self.hang_in_here
        harness.at_close(self.free.set)

    def __call__(self, batch, number):
        if self.struck.is_set():
            self.began.set()
            self._then(batch)

    def hang_in_here(self, batch):
        self.free.wait()


class SourceSwitch:
    """Makes a staged source fail; switched off at the end, so that nothing hangs."""

    def __init__(self, harness: SparkHarness, name: str) -> None:
        self.path = harness.folder(name) / "switch"
        harness.at_close(lambda: self.path.unlink(missing_ok=True))


# -- queries that end ---------------------------------------------------------------------------


def dies_in_first_batch(harness):
    name, blow = "dies_in_first_batch", Blow(harness, die)
    blow.struck.set()
    reported = ExpectedPage("StreamingQueryFailed", name, "Boom: ")
    return Failing(None, lambda: harness.start(harness.rate(), name, blow), (reported,))


def dies_initialising(harness):
    """Its checkpoint was written by a future version of Spark."""
    name = "dies_initialising"
    checkpoint = harness.checkpoint(name)
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text("v99\n{}\n-\n")
    (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid4())}))
    reported = ExpectedPage("StreamingQueryFailed", name, "IllegalStateException: ")
    return Failing(None, lambda: harness.start(harness.rate(), name), (reported,))


def overflowed(harness):
    """Fails while it is being stopped, and the stack of Spark overflows on the message.

    ``StreamExecution.isInterruptionException`` matches it with a regular expression that recurs
    for every character; the query ends without an exception. Spark 3.5 may report the exception.
    """

    def fail_in_java(batch):
        blow.free.wait()
        batch.sparkSession._jvm.java.lang.Class.forName("x" * 8000)

    blow = Blow(harness, fail_in_java)
    query = harness.start(harness.rate(), "overflowed", blow)

    def stop_and_fail():
        blow.struck.set()
        until(blow.began.is_set, "overflowed is in its batch")
        harness.help(query.stop)
        until(lambda: not query.isActive, "overflowed is being stopped")
        blow.free.set()

    reported = ExpectedPage("StreamingQueryStopped", "overflowed", "stopped without an ")
    return Failing(query, stop_and_fail, (reported,))


def crash_loop(harness):
    """Every run commits a batch and fails in the next one: another batch each time."""
    runs = []

    def die_in_second_batch(batch, number):
        runs[-1].append(number)
        if len(runs[-1]) > 1:
            die(batch)

    return restarting(harness, "crash_loop", die_in_second_batch, runs, "")


def poison_batch(harness):
    """Its second batch never succeeds."""

    def die_in_batch_one(batch, number):
        if number:
            die(batch)

    return restarting(harness, "poison_batch", die_in_batch_one, [], "poison_batch")


def restarting(harness, name, function, runs, reason):
    """User code starts the query again and again, and then gives up."""

    def keep_up():
        for _ in range(TRIES):
            runs.append([])
            query = harness.start(harness.rate(), name, function, trigger=BRISK)
            while query.isActive and not harness.closing.wait(0.02):
                pass
            if harness.closing.wait(1.5):
                return

    reported = (
        ExpectedPage("StreamingQueryFailed", name, "Boom: "),
        ExpectedPage("StreamingQueryFlapping", name, reason),
    )
    return Failing(None, lambda: harness.help(keep_up), reported)


def die(batch):
    raise Boom("the table is gone")


# -- queries that get stuck ---------------------------------------------------------------------


def hangs_in_first_batch(harness):
    name, blow = "hangs_in_first_batch", Blow(harness)
    blow.struck.set()
    reported = ExpectedPage("StreamingQueryStalled", name, "batch_hung: batch 0 ")
    return Failing(None, lambda: harness.start(harness.rate(), name, blow), (reported,))


def hangs_in_source(harness):
    return from_staged(
        harness, "hangs_in_source", HangingReader, "StreamingQueryStalled", "source_hung: "
    )


def continuous_stops(harness):
    """Its only task hangs, so no epoch ends."""
    failing = "java_method('java.lang.System', 'getProperty', 'workload.continuous') = 'failing'"
    hang = f"CASE WHEN {failing} THEN java_method('java.lang.Thread', 'sleep', 600000L) END AS hang"
    stream = harness.rate().selectExpr("value", hang)
    query = harness.start(stream, "continuous_stops", trigger={"continuous": "1 second"})
    strike = lambda: set_property(harness, "workload.continuous", "failing")
    return Failing(query, strike, (ExpectedPage("StreamingQueryStalled", "continuous_stops"),))


def async_log_stops(harness):
    """Its storage hangs: Spark continues until the queue of its writer is full, some writes later."""
    name = "async_log_stops"
    query = harness.start(
        harness.rate(),
        name,
        trigger=AT_ONCE,
        asyncProgressTrackingEnabled=True,
        asyncProgressTrackingCheckpointIntervalMs=2500,
    )
    storage = Storage(harness.spark, query)
    harness.at_close(storage.free.set)
    reported = ExpectedPage("StreamingQueryStalled", name, "commit_log_behind: ")
    return Failing(query, storage.hang, (reported,))


class Storage:
    """The log writer of a query with async progress tracking: one of its writes hangs."""

    def __init__(self, spark, query) -> None:
        self.free = threading.Event()
        self._writer = query._jsq.streamingQuery().asyncWritesExecutorService()
        ensure_callback_server_started(spark.sparkContext._gateway)

    def hang(self):
        self._writer.submit(self)

    def run(self):
        self.free.wait()

    class Java:
        implements = ("java.lang.Runnable",)


# -- queries that run without progress ----------------------------------------------------------


def offsets_frozen(harness):
    return from_staged(harness, "offsets_frozen", FrozenReader, "StreamingOffsetsStalled")


def offsets_rewound(harness):
    return from_staged(harness, "offsets_rewound", RewoundReader, "StreamingOffsetsRewound")


def from_staged(harness, name, reader, alertname, reason=""):
    switch = SourceSwitch(harness, name)
    stream = staged(harness.spark, reader, switch.path)
    reported = ExpectedPage(alertname, name, reason)
    return Failing(start_alone(harness, stream, name), switch.path.touch, (reported,))


def lagging(harness):
    name, switch = "lagging", SourceSwitch(harness, "lagging")
    query = start_alone(harness, harness.backlog(switch.path), name)
    return Failing(query, switch.path.touch, (ExpectedPage("StreamingQueryLagging", name),))


def start_alone(harness, stream, name):
    """Start one query and wait for its first commit: Spark gives a Python process 10 s to start.

    Try again where the machine was too busy.
    """
    for _ in range(STARTS):
        query = harness.start(stream, name, trigger=STEADY)
        until(partial(commits_or_ends, harness, query), f"{name} commits")
        if query.isActive:
            return query
    raise query.exception()


def commits_or_ends(harness, query):
    return harness.committed(query.name) >= 0 or not query.isActive


def watermark_stuck(harness):
    """The clock of one of two writers stops; the rows of both keep arriving."""
    clock = "java_method('java.lang.System', 'getProperty', 'workload.clock')"
    set_property(harness, "workload.clock", str(time.time() + 1000))
    stopping = f"least(timestamp, timestamp_seconds(CAST({clock} AS DOUBLE))) AS at"
    living, other = (
        harness.rate().selectExpr(at).withWatermark("at", "1 second")
        for at in ("timestamp AS at", stopping)
    )
    query = harness.start(living.union(other), "watermark_stuck", trigger=AT_ONCE)
    strike = lambda: set_property(harness, "workload.clock", str(time.time()))
    return Failing(query, strike, (ExpectedPage("StreamingWatermarkStuck", "watermark_stuck"),))


def drops_late_rows(harness):
    """Nine of ten rows are an hour old, from the beginning."""
    hour = (
        "timestamp - CASE WHEN value % 10 = 0 THEN INTERVAL 0 HOUR ELSE INTERVAL 1 HOUR END AS at"
    )
    events = harness.rate().selectExpr(hour).withWatermark("at", "1 second").groupBy("at").count()
    query = harness.start(events, "drops_late_rows", trigger=AT_ONCE)
    return Failing(query, lambda: None, (ExpectedPage("StreamingRowsDropped", "drops_late_rows"),))


def set_property(harness, name, value):
    system = harness.spark._jvm.java.lang.System
    system.setProperty(name, value)
    harness.at_close(lambda: system.clearProperty(name))


def healthy(harness):
    return Failing(harness.start(harness.rate(), "healthy"), lambda: None, ())


FROM_PYTHON = (hangs_in_source, offsets_frozen, offsets_rewound, lagging)
"""On a source in Python that reports its newest offset."""

HEALTHY_AT_FIRST = (
    healthy,
    overflowed,
    continuous_stops,
    async_log_stops,
    watermark_stuck,
    drops_late_rows,
)
FAILING_FROM_THE_START = (
    dies_in_first_batch,
    dies_initialising,
    hangs_in_first_batch,
    crash_loop,
    poison_batch,
)
