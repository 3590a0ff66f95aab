"""A job that fails in each process at the same batch is one incident. Uses real processes."""

from __future__ import annotations

import time

import pytest
from support.driver import Driver
from support.pagerduty_double import PagerDutyDouble
from support.pages import PageRecorder
from support.queries import until

from querypulse.alerting.restarts import ANNOTATION

pytestmark = pytest.mark.spark

WINDOW_SECONDS = 20.0
PATIENCE_SECONDS = 180.0
"""Enough for a busy machine."""
KEY = "querypulse/driver/bronze/StreamingQueryFailed"
FLAPPING = "querypulse/driver/bronze/StreamingQueryFlapping"
JOB = """
sidecar = attach(
    spark, http_port=0, stall_floor_seconds=20, start_grace_seconds=20, stall_critical_factor=9, resolve_after_seconds=0,
    restart_window_seconds=3600,
    spool_dir=os.environ["SPOOL"] or None, webhook_url=os.environ["PAGES"], pagerduty_url=os.environ["PAGERDUTY"], pagerduty_routing_key="k" * 32,
)
def fail(batch, batch_id):
    if str(batch_id) == os.environ["POISON"]:
        raise ValueError("negative amount")
(
    rate().writeStream.queryName("bronze").trigger(processingTime="200 milliseconds")
    .option("checkpointLocation", os.environ["CHECKPOINT"]).foreachBatch(fail).start()
)
sidecar.await_any_failure()
"""


def job(folder, pages, pagerduty, *, poison="1", spool=""):
    """One process of the job; all processes share the checkpoint."""
    folder.mkdir()
    places = {"PAGES": pages.url, "PAGERDUTY": pagerduty.enqueue_url, "SPOOL": spool}
    checkpoint = str(folder.parent / "checkpoint")
    return Driver(JOB, folder, POISON=poison, CHECKPOINT=checkpoint, **places)


def run_job(folder, pages, pagerduty, **how):
    """Run one process to its end; returns its exit code."""
    with job(folder, pages, pagerduty, **how) as driver:
        return driver.wait(PATIENCE_SECONDS)


@pytest.mark.timeout(3 * PATIENCE_SECONDS)
def test_failure_at_one_batch_in_each_process_is_one_incident(tmp_path):
    with PageRecorder() as pages, PagerDutyDouble() as pagerduty:
        codes = [run_job(tmp_path / f"{number}", pages, pagerduty) for number in range(2)]
        planned_at = (tmp_path / "checkpoint" / "offsets" / "1").stat().st_mtime
        until(lambda: time.time() - planned_at > WINDOW_SECONDS, "the plan is old", timeout=30)
        codes.append(run_job(tmp_path / "last", pages, pagerduty))
        opened, text = dict(pagerduty.incidents), pagerduty.events[-1]["payload"]["summary"]
        actions = [event["event_action"] for event in pagerduty.events]
        fired = [page for page in pages.pages if page.status == "firing"]
        with job(tmp_path / "fixed", pages, pagerduty, poison=""):
            until(lambda: not pagerduty.open, "the incident is resolved", timeout=PATIENCE_SECONDS)

    assert codes == [1, 1, 1]
    assert opened == {KEY: 1}
    # Batch 0 may prove the first process healthy: it then resolves what an earlier one left.
    assert "resolve" not in actions[actions.index("trigger") :]
    assert text.startswith("[driver] bronze failed: ValueError: negative amount; batch 1 was ")
    assert text.endswith(" ago and never committed, over restarts")
    assert {page.what for page in fired} == {("StreamingQueryFailed", "bronze")}
    assert ANNOTATION not in fired[0].annotations
    assert ANNOTATION in fired[-1].annotations
    assert pagerduty.incidents == {KEY: 1}


def wording(pagerduty, key):
    """The summary of the newest trigger of an incident."""
    return [one["payload"]["summary"] for one in pagerduty.events if one["dedup_key"] == key][-1]


@pytest.mark.timeout(4 * PATIENCE_SECONDS)
def test_spool_counts_failures_of_all_processes(tmp_path):
    """Batch 1 fails in three processes; the fourth process passes it and fails at batch 4."""
    spool = str(tmp_path / "spool")
    with PageRecorder() as pages, PagerDutyDouble() as pagerduty:
        opened = []
        for number in range(3):
            run_job(tmp_path / f"{number}", pages, pagerduty, spool=spool)
            opened.append(dict(pagerduty.incidents))
        named = wording(pagerduty, FLAPPING)
        run_job(tmp_path / "past it", pages, pagerduty, spool=spool, poison="4")

    assert opened == [{KEY: 1}, {KEY: 1}, {KEY: 1, FLAPPING: 1}]
    assert named == (
        "[driver] bronze keeps failing: batch 1 failed 3 times with ValueError, "
        "2 of them in earlier processes (poison_batch)"
    )
    assert pagerduty.incidents == {KEY: 1, FLAPPING: 1}
    assert FLAPPING in pagerduty.open
