"""On real Spark: every failure and every unexpected end is reported with its reason."""

from __future__ import annotations

import re
import threading

import pytest
from support.queries import Trap, commits, rate, shown, start, until
from support.spark_harness import JobListener

pytestmark = [pytest.mark.spark, pytest.mark.every_spark]

FAILED = "StreamingQueryFailed"


def raises():
    raise ValueError("a mistake of the neighbour")


def test_failure_pages_with_its_reason_and_without_secrets(spark, watch, pages):
    """One query is older than the sidecar, one is of another session."""
    traps = {name: Trap() for name in ("older", "elsewhere", "doomed")}
    older = start(rate(spark), "older", traps["older"])
    until(lambda: older.lastProgress, "it commits")
    sidecar = watch()
    start(rate(spark.newSession()), "elsewhere", traps["elsewhere"])
    doomed = start(rate(spark), "doomed", traps["doomed"])
    start(rate(spark), "healthy")
    for name in (*traps, "healthy"):
        commits(sidecar, name)
    assert shown(sidecar, "older").id == older.id

    for name in ("older", "elsewhere"):
        traps[name].die.set()
        pages.wait_for(FAILED, name)
    traps["doomed"].die.set()
    page = pages.wait_for(FAILED, "doomed")

    assert page.annotations["reason"].startswith("Boom: files were added by a concurrent update")
    assert page.annotations["all_queries"].startswith("1 of 4 healthy; unhealthy: ")
    assert "hunter2" not in str(pages.requests)
    assert shown(sidecar, "doomed").state == "failed"
    assert shown(sidecar, "healthy").state == "running"
    assert pages.reported == [("firing", FAILED, name) for name in traps]

    def evidence():
        for alert in sidecar.alerts():
            is_complete = "offsets" in alert.annotations.get("on_restart", "")
            if alert.labels["query"] == "doomed" and is_complete:
                return alert.annotations
        return None

    complete = until(evidence, "the evidence is complete")
    batch = int(complete["on_restart"].split()[1])
    assert re.fullmatch(
        rf"batch {batch} runs again, offsets \{{.+: \d+\}} to \{{.+: \d+\}}", complete["on_restart"]
    )
    assert batch == doomed.lastProgress["batchId"] + 1
    assert "job line" in complete["main_thread"]


@pytest.mark.fault(
    "Spark and its listeners",
    "A neighbour's listener raises in each callback, or never returns",
    "A failure is reported, and its event arrives",
)
@pytest.mark.parametrize("act", [None, pytest.param(raises, marks=pytest.mark.thorough)])
def test_failure_pages_while_another_listener_raises_or_blocks_the_bus(spark, watch, pages, act):
    free = threading.Event()
    neighbour = JobListener(act or free.wait)
    spark.streams.addListener(neighbour)
    try:
        sidecar = watch()
        trap = Trap()
        start(rate(spark), "doomed", trap)
        until(lambda: neighbour.batches, "the neighbour is called")
        commits(sidecar, "doomed")

        trap.die.set()
        pages.wait_for(FAILED, "doomed")
        # Our listener has its own queue, so the event comes as well.
        until(lambda: sidecar.snapshot().monitor.events.get("terminated"), "its end event arrives")
    finally:
        free.set()
        spark.streams.removeListener(neighbour)


def test_stopped_and_missing_queries_page_and_announced_stops_do_not(spark, watch, pages):
    names = ("here", "announced by name", "announced by query", "unplanned")
    queries = {name: start(rate(spark), name) for name in names}
    short = {"nowhere": {"start_grace_seconds": 5}, "unplanned": {"gone_grace_seconds": 0.5}}
    sidecar = watch(expected_queries=["here", "nowhere"], queries=short)
    for name in names:
        commits(sidecar, name)
    with pytest.raises(ValueError, match=r"no query is named 'hear'; known: "):
        sidecar.expect_stop("hear")

    sidecar.expect_stop("announced by name")
    sidecar.expect_stop(queries["announced by query"])
    for name in names[1:]:
        queries[name].stop()
    stopped = pages.wait_for("StreamingQueryStopped", "unplanned")
    missing = pages.wait_for("StreamingQueryMissing", "nowhere")
    assert sidecar.flush()

    assert stopped.annotations["reason"].startswith("stopped without an exception")
    assert "here" in missing.annotations["known_queries"].split(", ")
    assert {page.what for page in pages.pages} == {stopped.what, missing.what}
    assert {name: shown(sidecar, name).state for name in (*names, "nowhere")} == {
        "here": "running",
        "announced by name": "stopped",
        "announced by query": "stopped",
        "unplanned": "stopped_unexpectedly",
        "nowhere": "missing",
    }
