"""Other listeners of the job can neither delay nor hide a failure. Uses real Spark."""

from __future__ import annotations

import threading

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener
from support.queries import SPARK_PATIENCE_SECONDS, Trap, commits, rate, start

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


class ActingListener(StreamingQueryListener):
    """A listener of the job; each of its callbacks but that of a start calls ``act``."""

    def __init__(self, act):
        self._act = act
        self.called = threading.Event()

    def onQueryStarted(self, event):
        pass

    def onQueryProgress(self, event):
        self.called.set()
        self._act()

    def onQueryIdle(self, event):
        self.onQueryProgress(event)

    def onQueryTerminated(self, event):
        self.onQueryProgress(event)


def raises():
    raise ValueError("a mistake of the neighbour")


@pytest.fixture
def hangs():
    """Blocks until the test ends."""
    free = threading.Event()
    yield free.wait
    free.set()


@pytest.fixture(params=["raises", "hangs"])
def neighbour(request, spark, hangs):
    """A neighbour that raises, and one that never returns."""
    listener = ActingListener(raises if request.param == "raises" else hangs)
    spark.streams.addListener(listener)
    yield listener
    spark.streams.removeListener(listener)


@pytest.fixture
def without_polls():
    """Let a sidecar's probe hang from now on, until the test ends."""
    free, held = threading.Event(), []

    def hold(sidecar):
        probe = sidecar._runtime._observers.prober._probe
        poll, held[:] = probe.poll, [probe]

        def waits(clock):
            free.wait()
            return poll(clock)

        probe.poll = waits

    yield hold
    for probe in held:
        del probe.poll
    free.set()


@pytest.mark.fault(
    "Spark and its listeners",
    "A neighbour's listener raises in each callback, or never returns",
    "A failure is reported although its listener is not done, and no poll shows it",
)
def test_neighbours_listener_cannot_hide_a_failure(spark, watch, pages, neighbour, without_polls):
    trap, sidecar = Trap(), watch()
    query = start(rate(spark), "doomed", trap)
    commits(sidecar, "doomed")
    assert neighbour.called.wait(SPARK_PATIENCE_SECONDS)
    without_polls(sidecar)
    trap.die.set()
    page = pages.wait_for("StreamingQueryFailed", "doomed", timeout=SPARK_PATIENCE_SECONDS)

    assert page.status == "firing"
    assert not query.isActive
