"""Other listeners of the job can neither delay nor hide a failure. Uses real Spark."""

from __future__ import annotations

import threading
import time

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener
from support.queries import Trap, commits, rate, start, until

pytestmark = pytest.mark.spark

AT_MOST_SECONDS = 10.0
"""Ten times what it takes on a free machine."""
EVENT_SECONDS = 0.3
QUERIES = 8


class ActingListener(StreamingQueryListener):
    """A listener of the job; each of its callbacks but that of a start calls ``act``."""

    def __init__(self, act):
        self.act = act
        self.called = threading.Event()
        self.calls = 0

    def onQueryStarted(self, event):
        pass

    def onQueryProgress(self, event):
        self.calls += 1
        self.called.set()
        self.act()

    def onQueryIdle(self, event):
        self.act()

    def onQueryTerminated(self, event):
        self.act()


def raises():
    raise ValueError("a mistake of the neighbour")


@pytest.fixture
def hangs():
    """Blocks until the test ends."""
    free = threading.Event()
    yield lambda: free.wait(120)
    free.set()


@pytest.fixture(params=["raises", "hangs"])
def neighbour(request, spark, hangs):
    """A neighbour that raises, and one that never returns."""
    listener = ActingListener(raises if request.param == "raises" else hangs)
    spark.streams.addListener(listener)
    yield listener
    spark.streams.removeListener(listener)


@pytest.mark.fault(
    "Spark and its listeners",
    "A neighbour's listener raises in each callback, or never returns",
    "A failure is reported without delay",
)
def test_neighbours_listener_cannot_delay_a_failure(spark, watch, pages, neighbour, measured):
    trap = Trap()
    # The probe must not find it: the event has to arrive despite the neighbour.
    sidecar = watch(probe_interval_seconds=60)
    query = start(rate(spark), "doomed", trap)
    commits(sidecar, "doomed")
    assert neighbour.called.wait(30)
    trap.die.set()
    page = pages.wait_for("StreamingQueryFailed", "doomed")
    seconds = time.monotonic() - trap.died_at

    measured(f"{seconds:.2f} s from the failure to the alert")
    assert seconds < AT_MOST_SECONDS
    assert page.status == "firing"
    assert not query.isActive


@pytest.fixture
def slow(spark):
    """A neighbour that takes its time for each event."""
    free = threading.Event()
    listener = ActingListener(lambda: free.wait(EVENT_SECONDS))
    yield listener
    free.set()
    spark.streams.removeListener(listener)


@pytest.mark.fault(
    "Spark and its listeners",
    "A neighbour's listener takes 300 ms for each event of eight queries",
    "A failure is reported as soon as without it",
)
def test_slow_neighbour_of_eight_queries_delays_no_failure(spark, watch, pages, slow, measured):
    sidecar = watch(probe_interval_seconds=60)
    traps = [Trap() for _ in range(QUERIES)]
    queries = [start(rate(spark), f"shop-{n}", trap) for n, trap in enumerate(traps)]
    for query in queries:
        commits(sidecar, query.name)
    alone = seconds_to_alert(pages, traps[0], "shop-0")
    spark.streams.addListener(slow)
    assert slow.called.wait(30)
    behind = batches(queries) + 40
    until(lambda: batches(queries) > behind, "its queue grows", 60)
    assert slow.calls < 40
    beside = seconds_to_alert(pages, traps[1], "shop-1")

    measured(f"{alone:.2f} s from the failure to the alert without it, {beside:.2f} s beside it")
    assert alone < AT_MOST_SECONDS
    assert beside < AT_MOST_SECONDS


def batches(queries):
    """How many batches they have done; each is an event of its own."""
    return sum(query.lastProgress["batchId"] for query in queries)


def seconds_to_alert(pages, trap, name):
    """Let a query fail; how long it takes until the alert arrives."""
    trap.die.set()
    page = pages.wait_for("StreamingQueryFailed", name)
    return page.at - trap.died_at
