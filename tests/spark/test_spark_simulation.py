"""The simulated Spark and the real one give the same observations for the same plan."""

from __future__ import annotations

import contextlib
import logging
import threading
import time

import pytest
from pyspark.errors import StreamingQueryException
from simulation.comparison import PLAN, recording
from simulation.world import run
from support.queries import Trap

pytestmark = pytest.mark.spark

FEED_SECONDS = 0.5


class RealQuery:
    """Applies the steps of the plan to a query of a real Spark."""

    def __init__(self, spark, folder, spec):
        self.spec = spec
        self.feeds = True
        self._folder = folder
        self._trap = Trap()
        self._checkpoint = 0
        self._fed = 0
        self._query = None
        (folder / "in").mkdir(parents=True)
        self._lines = spark.readStream.format("text").load(str(folder / "in"))

    def feed(self):
        if self.feeds:
            self._fed += 1
            (self._folder / "in" / f"{self._fed}.txt").write_text("a\n")

    def start(self, _step, _sidecar):
        writer = self._lines.writeStream.queryName(self.spec.name).foreachBatch(self._trap)
        trigger = {
            "ProcessingTime": {"processingTime": f"{self.spec.every} seconds"},
            "Once": {"once": True},
            "AvailableNow": {"availableNow": True},
        }[self.spec.trigger]
        folder = self._folder / f"checkpoint-{self._checkpoint}"
        self._query = writer.trigger(**trigger).option("checkpointLocation", str(folder)).start()

    def fail_first(self, _step, _sidecar):
        self._trap.die.set()

    die = fail_first

    def restart(self, step, sidecar):
        with contextlib.suppress(StreamingQueryException):
            self._query.awaitTermination(10)
        self._trap = Trap()
        self._checkpoint += step.arg == "new"
        self.start(step, sidecar)

    def stop(self, _step, _sidecar):
        self._query.stop()

    def plan_stop(self, step, sidecar):
        sidecar.expect_stop(self.spec.name)
        self.stop(step, sidecar)

    def hang(self, _step, _sidecar):
        self._trap.hold.set()

    def dry(self, _step, _sidecar):
        self.feeds = False

    def end(self):
        self._trap.free.set()


@contextlib.contextmanager
def fed(queries):
    """New files for each query, faster than its triggers."""
    done = threading.Event()

    def feed():
        while not done.wait(FEED_SECONDS):
            for query in queries:
                query.feed()

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        for query in queries:
            query.end()


@pytest.fixture(scope="module")
def simulated():
    logging.disable(logging.CRITICAL)
    with recording() as found:
        run(PLAN)
    logging.disable(logging.NOTSET)
    return found.by_name()


@pytest.fixture
def real(spark, watch, tmp_path):
    """The plan on real Spark, in real time."""
    queries = {spec.key: RealQuery(spark, tmp_path / spec.key, spec) for spec in PLAN.queries}
    for query in queries.values():
        query.feed()
    with recording() as found, fed(queries.values()):
        sidecar = watch()
        began = time.monotonic()
        for step in sorted(PLAN.steps, key=lambda one: one.at):
            time.sleep(max(0.0, began + step.at - time.monotonic()))
            getattr(queries[step.who], step.do)(step, sidecar)
        time.sleep(max(0.0, began + PLAN.horizon - time.monotonic()))
    return found.by_name()


def test_real_and_simulated_spark_give_the_same_observations(real, simulated):
    assert real == simulated
