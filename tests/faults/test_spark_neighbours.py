"""Other listeners of the job can neither delay nor hide a failure. Uses real Spark."""

from __future__ import annotations

import threading
import time

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener
from support.queries import Trap, commits, rate, start

pytestmark = pytest.mark.spark

AT_MOST_SECONDS = 10.0
"""Ten times what it takes on a free machine."""


class ActingListener(StreamingQueryListener):
    """A listener of the job; each of its callbacks but that of a start calls ``act``."""

    def __init__(self, act):
        self.act = act
        self.called = threading.Event()

    def onQueryStarted(self, event):
        pass

    def onQueryProgress(self, event):
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
    "A failure is reported as soon as ever",
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
