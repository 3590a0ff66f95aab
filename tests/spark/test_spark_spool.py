"""One driver after the other shares a spool: the next one goes on with what the last one reported."""

from __future__ import annotations

import os
import signal
import time

import msgspec
import pytest
from support.driver import START_SECONDS, Driver
from support.http_double import reply
from support.pagerduty_double import PagerDutyDouble
from support.patience import until

from querypulse.alerting.delivery.spool import Kept

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

WATCHED = """
sidecar = attach(
    spark, app_name="etl", http_port=-1, webhook_url=os.environ["PAGES"],
    spool_dir=os.environ["SPOOL"], resolve_after_seconds=1,
)
def fail(batch, batch_id):
    raise ValueError("concurrent update, password=hunter2")
"""
FAILING = (
    WATCHED
    + """
query = start("bronze", fail)
until(lambda: sidecar.alerts() and not query.isActive)
until(lambda: sidecar.flush(60))
say("reported")
time.sleep(3600)
"""
)
HEALTHY = (
    WATCHED
    + """
start("bronze")
time.sleep(3600)
"""
)
EVENT = ("firing", "StreamingQueryFailed", "bronze")


# The lease of a driver that was killed lasts a minute.
IN_A_STORE = pytest.param("a store of Hadoop", marks=pytest.mark.nightly)


@pytest.fixture(params=["a disk", IN_A_STORE])
def drive(request, tmp_path, pages):
    """Start a driver; all drivers share one spool, as a path or as a URI that only Hadoop opens."""
    count = iter(range(9))
    spool, prelude = tmp_path / "spool", ""
    place = str(spool)
    if request.param != "a disk":
        spool.mkdir()
        link = ("fs.viewfs.mounttable.team.link./spool", spool.as_uri())
        prelude = f"spark.sparkContext._jsc.hadoopConfiguration().set{link}\n"
        place = "viewfs://team/spool"

    def driver(script, **environment):
        folder = tmp_path / str(next(count))
        folder.mkdir()
        environment |= {"PAGES": pages.url, "SPOOL": place}
        return Driver(prelude + script, folder, **environment)

    return driver


def kept_in(folder):
    return "".join(path.read_text() for path in (folder / "spool").glob("outbox-*.json"))


@pytest.mark.fault(
    "Ends and kills",
    "SIGKILL before an alert is delivered",
    "The next driver delivers it from the spool",
)
def test_next_driver_sends_and_resolves_the_alert_a_killed_driver_could_not_send(
    drive, pages, tmp_path
):
    pages.takes, pages.otherwise = False, reply(503)
    with drive(FAILING) as driver:
        until(lambda: len(pages.requests) > 1, "it tries to send the alert", START_SECONDS)
        # A message waits only shortly for a slow disk.
        until(lambda: EVENT[1] in kept_in(tmp_path), "the alert is on the disk", START_SECONDS)
        driver.signal_all(signal.SIGKILL)
    assert pages.reported == []
    pages.takes, pages.otherwise = True, reply(200)

    with drive(HEALTHY):
        until(lambda: len(pages.reported) == 2, "the alert and its resolve arrive", START_SECONDS)
    # Hadoop writes hidden checksums beside its files on a disk.
    kept = list((tmp_path / "spool").glob("outbox-*"))

    assert pages.reported == [EVENT, ("resolved", *EVENT[1:])]
    assert not any(b"hunter2" in path.read_bytes() for path in kept)
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}


# -- a job that fails in each process at the same batch -------------------------------------------

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


@pytest.mark.nightly
def test_batch_that_fails_in_each_process_is_one_incident_until_it_is_fixed(drive, pages, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    with PagerDutyDouble() as pagerduty:
        places = {"PAGERDUTY": pagerduty.enqueue_url, "CHECKPOINT": str(checkpoint)}
        pagerduty.open.add(OF_ANOTHER_DRIVER)
        opened = []
        for _ in range(3):
            with drive(JOB, POISON="1", **places) as driver:
                assert driver.wait() == 1, driver.errors
            opened.append(dict(pagerduty.incidents))
            planned_at = time.time() - HOUR
            os.utime(checkpoint / "offsets" / "1", (planned_at, planned_at))
        events, sent = list(pagerduty.events), list(pages.reported)
        with drive(JOB, POISON="", **places):
            until(lambda: KEY not in pagerduty.open, "the failure is resolved", START_SECONDS)

    assert opened == [{KEY: 1}] * 3
    # Batch 0 may prove the first process healthy: it then resolves what an earlier one left.
    actions = [event["event_action"] for event in events]
    assert "resolve" not in actions[actions.index("trigger") :]
    assert [page for page in sent if page[0] == "firing"] == [EVENT]
    assert pagerduty.incidents == {KEY: 1}
    assert pagerduty.open == {OF_ANOTHER_DRIVER}


LOOP = """
sidecar = attach(
    spark, app_name="etl", http_port=-1, restart_budget=3, webhook_url=os.environ["PAGES"],
    spool_dir=os.environ.get("KEPT"),
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


@pytest.mark.nightly
@pytest.mark.parametrize("drive", ["a store of Hadoop"], indirect=True)
@pytest.mark.parametrize(("has_spool", "expected"), [(True, 1), (False, 3)])
def test_crash_loop_over_new_machines_is_one_incident(drive, pages, tmp_path, has_spool, expected):
    """Each process commits something, fails, and is followed by one that has only the store."""
    kept = {"KEPT": "viewfs://team/spool"} if has_spool else {}
    for poison in ("2", "5", "8"):
        checkpoint = str(tmp_path / "checkpoint")
        with drive(LOOP, POISON=poison, CHECKPOINT=checkpoint, **kept) as driver:
            assert driver.wait() == 1, driver.errors
    firing = [page for page in pages.reported if page[0] == "firing"]

    assert firing.count(EVENT) == expected
    assert not [page for page in pages.reported if page[0] == "resolved"]
    if has_spool:
        (content,) = (tmp_path / "spool").glob("outbox-*.json")
        (failed,) = msgspec.json.decode(content.read_bytes(), type=Kept).failures
        assert len(failed.failures) == 3
