"""On real Spark: a slow batch is a warning; a batch that never ends becomes critical."""

from __future__ import annotations

import re
import threading

import pytest
from support.queries import Trap, commits, rate, start, until, warm

from querypulse.alerting.rules.stuck_batch import SAMPLE_SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

FLOOR = 8.0
SLEEP = "java_method('java.lang.Thread', 'sleep', 600000L)"


def run_tasks(batch, tasks):
    """Run ``tasks`` tasks at once that end only with their query."""
    batch.sparkSession.range(0, tasks, 1, tasks).selectExpr(SLEEP).collect()


def running_tasks(spark):
    """The number of tasks that run now."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def reported(pages, name):
    """What was reported of a query, in order: severity and kind of the reason."""
    return [
        (page.labels["severity"], page.annotations["reason"].partition(":")[0])
        for page in pages.pages
        if page.what[1] == name and page.status == "firing"
    ]


@pytest.mark.nightly
def test_long_batch_is_a_warning_with_its_kind_and_an_endless_one_is_critical(spark, watch, pages):
    slots = int(re.sub(r"\D", "", spark.sparkContext.master))
    traps = {name: Trap() for name in ("attached late", "skewed", "retried", "greedy", "waits")}
    queries = [start(rate(spark), name, trap) for name, trap in traps.items()]
    # The slow first batches would lengthen the window.
    for query in queries:
        warm(query)
    traps["attached late"].work = lambda batch: run_tasks(batch, 1)
    until(lambda: running_tasks(spark) == 1, "the long task runs before the sidecar")
    limits = {"stall_critical_seconds": 3 * FLOOR, "slow_critical_seconds": 3 * FLOOR}
    # Only what hangs before the sidecar is there has no activity at first.
    own = {"attached late": {"start_grace_seconds": FLOOR}}
    # What retries is critical as soon as a stall.
    own["retried"] = {"slow_critical_seconds": 3600.0}
    sidecar = watch(stall_floor_seconds=FLOOR, queries=own, **limits)
    for query in queries[1:]:
        commits(sidecar, query.name, batches=query.lastProgress["batchId"] + 4)

    accepted = threading.Event()

    def retry(batch):
        while not accepted.wait(0.2):
            batch.count()

    traps["skewed"].work, traps["retried"].work = lambda batch: run_tasks(batch, 1), retry
    kinds = {"attached late": "task_running", "skewed": "task_running", "retried": "retrying"}
    for name, kind in kinds.items():
        until(lambda: ("critical", kind) in reported(pages, name), f"{name} is critical")  # noqa: B023
        said = reported(pages, name)
        # On a slow machine a batch may be slow before it has run so many jobs.
        warned = next(at for at, (severity, _) in enumerate(said) if severity == "warning")
        assert warned < said.index(("critical", kind))
    accepted.set()
    traps["retried"].work = None
    # Nobody has counted the task that is older than the sidecar.
    queries[0].stop()

    traps["greedy"].work = lambda batch: run_tasks(batch, slots)
    until(lambda: running_tasks(spark) == slots, "no slot is free")
    traps["waits"].work = lambda batch: batch.count()
    until(lambda: reported(pages, "waits"), "the waiting batch is reported")
    assert reported(pages, "waits")[0] == ("warning", "waiting_for_slots")


@pytest.mark.nightly
def test_many_that_wait_for_the_slots_of_one_are_its_incident(spark, watch, pages):
    slots = int(re.sub(r"\D", "", spark.sparkContext.master))
    names = ("backfill", "first", "second", "third")
    traps = {name: Trap() for name in names}
    queries = [start(rate(spark), name, trap) for name, trap in traps.items()]
    for query in queries:
        warm(query)
    # What holds a batch is asked after ten seconds, and counts once it has been the same for ten.
    floor = 2 * SAMPLE_SECONDS + 2.0
    sidecar = watch(stall_floor_seconds=floor, slow_critical_seconds=2 * floor)
    for query in queries:
        commits(sidecar, query.name, batches=query.lastProgress["batchId"] + 3)

    traps["backfill"].work = lambda batch: run_tasks(batch, slots)
    until(lambda: running_tasks(spark) == slots, "no slot is free")
    for name in names[1:]:
        traps[name].work = lambda batch: batch.count()

    def says_who_waits(severity):
        # Its own tasks do not finish either, so it is an alert about that which says who waits.
        return any(
            page.what[1] == "backfill"
            and page.labels["severity"] == severity
            and page.annotations.get("waiting") == "first, second, third"
            for page in pages.pages
        )

    until(lambda: says_who_waits("critical"), "it is critical for those who wait")
    assert [page.what for page in pages.pages if page.what[1] != "backfill"] == []
    sidecar.expect_stop("backfill")
    queries[0].stop()
    for name in names[1:]:
        commits(sidecar, name, batches=3)
    others = [page for page in pages.pages if page.what[1] != "backfill"]
    assert [(page.what, page.annotations["reason"]) for page in others] == []
