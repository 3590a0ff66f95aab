"""A job that fails in each process at the same batch is one incident. Uses real processes."""

from __future__ import annotations

import os
import time

import pytest
from support.driver import START_SECONDS, Driver
from support.pagerduty_double import PagerDutyDouble
from support.pages import PageRecorder
from support.patience import until

from querypulse.alerting.restarts import ANNOTATION

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(900)]

HOUR = 3600.0
KEY = "querypulse/driver/bronze/StreamingQueryFailed"
FLAPPING = "querypulse/driver/bronze/StreamingQueryFlapping"
OF_ANOTHER_DRIVER = "querypulse/driver/silver/StreamingQueryFailed"
JOB = """
sidecar = attach(
    spark, http_port=0, resolve_after_seconds=0, restart_window_seconds=3600,
    spool_dir=os.environ["SPOOL"], webhook_url=os.environ["PAGES"],
    pagerduty_url=os.environ["PAGERDUTY"], pagerduty_routing_key="k" * 32,
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


def test_batch_that_fails_in_each_process_is_one_incident_until_it_is_fixed(tmp_path):
    checkpoint = tmp_path / "checkpoint"
    with PageRecorder() as pages, PagerDutyDouble() as pagerduty:
        places = {"PAGES": pages.url, "PAGERDUTY": pagerduty.enqueue_url}
        places |= {"CHECKPOINT": str(checkpoint), "SPOOL": str(tmp_path / "spool")}

        def process(name, poison):
            (tmp_path / name).mkdir()
            return Driver(JOB, tmp_path / name, POISON=poison, **places)

        pagerduty.open.add(OF_ANOTHER_DRIVER)
        opened = []
        for name in ("first", "second", "third"):
            with process(name, poison="1") as driver:
                assert driver.wait() == 1, driver.errors
            opened.append(dict(pagerduty.incidents))
            planned_at = time.time() - HOUR
            os.utime(checkpoint / "offsets" / "1", (planned_at, planned_at))
        events, sent = list(pagerduty.events), list(pages.pages)
        with process("fixed", poison=""):
            until(lambda: KEY not in pagerduty.open, "the failure is resolved", START_SECONDS)

    assert opened == [{KEY: 1}, {KEY: 1}, {KEY: 1, FLAPPING: 1}]
    # Batch 0 may prove the first process healthy: it then resolves what an earlier one left.
    actions = [event["event_action"] for event in events]
    assert "resolve" not in actions[actions.index("trigger") :]
    text = {
        event["dedup_key"]: event["payload"]["summary"] for event in events if "payload" in event
    }
    assert text[KEY].startswith("[driver] bronze failed: ValueError: negative amount; batch 1 was ")
    assert text[KEY].endswith(" ago and never committed, over restarts")
    assert text[FLAPPING] == (
        "[driver] bronze keeps failing: batch 1 failed 3 times with ValueError, "
        "2 of them in earlier processes (poison_batch)"
    )
    failed = [page for page in sent if page.what == ("StreamingQueryFailed", "bronze")]
    assert ANNOTATION not in failed[0].annotations
    assert ANNOTATION in failed[-1].annotations
    assert pagerduty.incidents == {KEY: 1, FLAPPING: 1}
    # A query that keeps failing has to work for longer.
    assert pagerduty.open == {FLAPPING, OF_ANOTHER_DRIVER}
