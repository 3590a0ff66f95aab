"""Py4J's connections are cut under our threads: they connect again, and no failure is missed.

Uses a real driver.
"""

from __future__ import annotations

import json

import pytest
from support.driver import Driver

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(600)]

CUTS = 3
JOB = """
import contextlib, gc, json, socket
sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"])
die = threading.Event()
def work(batch, batch_id):
    if die.is_set():
        raise ValueError("after the cuts")
for name in ("bronze", "silver"):
    start(name)
doomed = start("doomed", work)
until_commits(sidecar, "bronze", "silver", "doomed")
client = spark.sparkContext._gateway._gateway_client
def cut():
    "Cut the connections of all threads but this one; they wait in the client between commands."
    mine, cuts = client.get_thread_connection(), 0
    for item in gc.get_objects():
        if isinstance(item, type(mine)) and item is not mine and item.initiated_from_client and item.socket:
            with contextlib.suppress(OSError):
                item.socket.shutdown(socket.SHUT_RDWR)
                cuts += 1
    return cuts
def progress():
    return sidecar.snapshot().monitor.events["progress"]
cuts = []
for _ in range(int(os.environ["CUTS"])):
    cuts.append(cut())
    cut_at, before = time.monotonic(), progress()
    has_polled = lambda: sidecar._runtime._observers.prober.latest.began_at > cut_at
    while progress() < before + 4 or not has_polled():
        time.sleep(0.02)
say(json.dumps({"cuts": cuts, "alerts": len(sidecar.alerts())}))
die.set()
while doomed.isActive:
    time.sleep(0.02)
while not sidecar.flush(60):
    time.sleep(0.05)
monitor = sidecar.snapshot().monitor
lost = monitor.events_dropped["connection_lost"]
say(json.dumps({"lost": lost, "errors": dict(monitor.internal_errors)}))
os._exit(0)
"""


@pytest.mark.fault(
    "Spark and its listeners",
    "All Py4J connections of our threads are cut, three times",
    "They connect again, lost events are counted, and a failure afterwards is reported",
)
def test_cut_connections_are_opened_again_and_no_failure_is_missed(tmp_path, pages, measured):
    with Driver(JOB, tmp_path, PAGES=pages.url, CUTS=str(CUTS)) as driver:
        assert driver.wait() == 0, driver.errors
    cut, failed = map(json.loads, driver.lines)

    measured(f"{sum(cut['cuts'])} connections cut, {failed['lost']} events lost and counted")
    # The reader and the probe always have one each.
    assert min(cut["cuts"]) >= 2
    assert cut["alerts"] == 0
    assert pages.reported == [("firing", "StreamingQueryFailed", "doomed")]
    # A poll that was cut is an error; the next one opens a connection. So is the question of the
    # reader at a failure, whether the SparkContext has stopped.
    assert set(failed["errors"]) <= {"probe", "reader"}
