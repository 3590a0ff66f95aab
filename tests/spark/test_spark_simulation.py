"""The simulated Spark and the real one give the same observations for the same plan."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import attrgetter

import pytest
from pyspark.errors import StreamingQueryException
from simulation.comparison import WAYS_TO_END, WAYS_TO_WORK, recording
from simulation.world import run
from support import patience
from support.queries import Trap, until

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

FEED_SECONDS = 0.5
BY_TIME = attrgetter("at")


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
        self._struck = False
        (folder / "in").mkdir(parents=True)
        self._spark = spark if spec.session == "s1" else spark.newSession()
        # Its threads have no query id: Python's do not inherit what Spark's have.
        self._pool = ThreadPoolExecutor(1)

    def feed(self):
        if self.feeds:
            self._fed += 1
            (self._folder / "in" / f"{self._fed}.txt").write_text("a\n")

    def seen_working(self, observed):
        """Whether it was seen to work, unless it does not run or must not work."""
        if self._query is None or not self._query.isActive or self._struck:
            return True
        events, polls = observed.get(self.spec.name or "unnamed", [([], [])])[-1]
        return bool(polls) and (self.spec.is_continuous or "progress" in events)

    def start(self, _step, _sidecar):
        writer = self._writer()
        if self.spec.name is not None:
            writer = writer.queryName(self.spec.name)
        trigger = {
            "ProcessingTime": {"processingTime": f"{self.spec.every} seconds"},
            "Once": {"once": True},
            "AvailableNow": {"availableNow": True},
            "Continuous": {"continuous": f"{self.spec.every} seconds"},
        }[self.spec.trigger]
        folder = self._folder / f"checkpoint-{self._checkpoint}"
        self._query = writer.trigger(**trigger).option("checkpointLocation", str(folder)).start()

    def _writer(self):
        if self.spec.is_continuous:
            rows = self._spark.readStream.format("rate").option("numPartitions", 1).load()
            return rows.writeStream.format("noop")
        lines = self._spark.readStream.format("text").load(str(self._folder / "in"))
        return lines.writeStream.foreachBatch(self._trap)

    def fail_first(self, _step, _sidecar):
        self._struck = True
        self._trap.die.set()

    die = fail_first

    def restart(self, step, sidecar):
        with contextlib.suppress(StreamingQueryException):
            self._query.awaitTermination()
        self._struck = False
        self._trap = Trap()
        self._checkpoint += step.arg == "new"
        self.start(step, sidecar)

    def stop(self, _step, _sidecar):
        self._query.stop()

    def plan_stop(self, step, sidecar):
        sidecar.expect_stop(self.spec.name)
        self.stop(step, sidecar)

    def hang(self, _step, _sidecar):
        self._struck = True
        self._trap.hold.set()

    def crawl(self, _step, _sidecar):
        self._struck = True
        self._trap.work = self._again_and_again(lambda batch: batch.count())

    def fan_out(self, _step, _sidecar):
        self._struck = True
        self._trap.work = self._again_and_again(
            lambda batch: self._pool.submit(batch.count).result()
        )

    def _again_and_again(self, job):
        def work(batch):
            while not self._trap.free.wait(0.5):
                job(batch)

        return work

    def dry(self, _step, _sidecar):
        self.feeds = False

    def end(self):
        self._trap.free.set()
        self._pool.shutdown(wait=False)


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


def simulated(plan):
    logging.disable(logging.CRITICAL)
    with recording() as recorder:
        run(plan)
    logging.disable(logging.NOTSET)
    return recorder.by_name()


def unlike(observed, expected):
    """The queries whose observations differ. What polls saw of a short run is left to chance."""
    return {
        name: (observed.get(name), runs)
        for name, runs in expected.items()
        if len(observed.get(name, ())) != len(runs)
        or any(not alike(*pair) for pair in zip(observed[name], runs, strict=True))
    }


def alike(run, expected):
    (events, polls), (expected_events, expected_polls) = run, expected
    is_short = polls is None or expected_polls is None
    return events == expected_events and (is_short or polls == expected_polls)


@pytest.fixture
def real(spark, watch, tmp_path):
    """Carries out a plan on real Spark until what was observed is as expected, or never will be.

    The next steps wait until what runs was seen to work: a busy machine is later than the plan.
    """

    def carry_out(plan, expected):
        queries = {spec.key: RealQuery(spark, tmp_path / spec.key, spec) for spec in plan.queries}
        for query in queries.values():
            query.feed()
        with recording() as recorder, fed(queries.values()):
            sidecar = watch()
            began = time.monotonic()

            def working():
                observed = recorder.by_name()
                return all(query.seen_working(observed) for query in queries.values())

            for at, steps in groupby(sorted(plan.steps, key=lambda step: step.at), BY_TIME):
                time.sleep(max(0.0, began + at - time.monotonic()))
                until(working, "what runs is seen to work")
                for step in steps:
                    getattr(queries[step.who], step.do)(step, sidecar)
            time.sleep(max(0.0, began + plan.horizon - time.monotonic()))
            with contextlib.suppress(AssertionError):
                patience.until(
                    lambda: not unlike(recorder.by_name(), expected), "all is as expected"
                )
            return recorder.by_name()

    return carry_out


@pytest.mark.parametrize("plan", [WAYS_TO_END, WAYS_TO_WORK], ids=["ends", "work"])
def test_real_and_simulated_spark_give_the_same_observations(real, plan):
    # First, because the real sidecar runs until the end of the test.
    expected = simulated(plan)
    observed = real(plan, expected)
    assert observed.keys() == expected.keys()
    assert unlike(observed, expected) == {}
