"""Py4J's connections are cut under our threads: they connect again, and no failure is missed.

Uses a real driver.
"""

from __future__ import annotations

import json

import pytest
from support.driver import Driver

pytestmark = pytest.mark.spark

CUTS = 3
AT_MOST_SECONDS = 10.0
"""Ten times what it takes on a free machine."""
JOB = """
import contextlib, gc, json, socket
sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"], stall_floor_seconds=8)
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
    for one in gc.get_objects():
        if isinstance(one, type(mine)) and one is not mine and one.initiated_from_client and one.socket:
            with contextlib.suppress(OSError):
                one.socket.shutdown(socket.SHUT_RDWR)
                cuts += 1
    return cuts
def progress():
    return sidecar.snapshot().monitor.events["progress"]
def is_fresh():
    return sidecar.snapshot().monitor.probe_age_seconds < 1.0
cuts, healed = [], []
for _ in range(int(os.environ["CUTS"])):
    cuts.append(cut())
    began, before = time.monotonic(), progress()
    time.sleep(0.3)
    while progress() < before + 4 or not is_fresh():
        time.sleep(0.02)
    healed.append(time.monotonic() - began)
say(json.dumps({"cuts": cuts, "healed": healed, "alerts": len(sidecar.alerts())}))
die.set()
while doomed.isActive:
    time.sleep(0.02)
ended = time.monotonic()
sidecar.flush()
monitor = sidecar.snapshot().monitor
lost = monitor.events_dropped["connection_lost"]
say(json.dumps({"at": ended, "lost": lost, "errors": dict(monitor.internal_errors)}))
os._exit(0)
"""


@pytest.mark.fault(
    "Spark and its listeners",
    "All Py4J connections of our threads are cut, three times",
    "They connect again, lost events are counted, and a failure afterwards is reported",
)
def test_cut_connections_are_opened_again_and_no_failure_is_missed(tmp_path, pages, measured):
    with Driver(JOB, tmp_path, PAGES=pages.url, CUTS=str(CUTS)) as driver:
        assert driver.wait(120) == 0, driver.errors
    cut, failed = map(json.loads, driver.lines)
    page = pages.pages[0]

    measured(
        f"{sum(cut['cuts'])} connections cut, new events and polls within {max(cut['healed']):.1f} s, "
        f"{failed['lost']} events lost and counted"
    )
    # The reader and the probe always have one each.
    assert min(cut["cuts"]) >= 2
    assert max(cut["healed"]) < AT_MOST_SECONDS
    assert cut["alerts"] == 0
    assert pages.reported == [("firing", "StreamingQueryFailed", "doomed")]
    assert page.at - failed["at"] < AT_MOST_SECONDS
    # A poll that was cut is an error; the next one opens a connection.
    assert set(failed["errors"]) <= {"probe"}
