"""A job that fails in each process at the same batch is one incident. Uses real processes."""

from __future__ import annotations

import os
import time

import pytest
from support.driver import START_SECONDS, Driver
from support.pagerduty_double import PagerDutyDouble
from support.pages import PageRecorder
from support.patience import until

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(900)]

HOUR = 3600.0
KEY = "querypulse/driver/bronze"
OF_ANOTHER_DRIVER = "querypulse/driver/silver"
JOB = """
sidecar = attach(
    spark, http_port=0, resolve_after_seconds=0, restart_budget=9,
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

    assert opened == [{KEY: 1}] * 3
    # Batch 0 may prove the first process healthy: it then resolves what an earlier one left.
    actions = [event["event_action"] for event in events]
    assert "resolve" not in actions[actions.index("trigger") :]
    assert [page.what for page in sent if page.status == "firing"] == [
        ("StreamingQueryFailed", "bronze")
    ]
    assert pagerduty.incidents == {KEY: 1}
    assert pagerduty.open == {OF_ANOTHER_DRIVER}
