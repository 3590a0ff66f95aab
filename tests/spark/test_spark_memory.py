"""The memory of a real driver with 512 MB: its old generation saws, then a ``foreachBatch`` leaks to the end.

A rise counts from two minutes on, so this takes six.
"""

from __future__ import annotations

import json

import pytest
from support.class_archive import driver_options
from support.driver import Driver
from support.patience import until

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(1800)]

MEMORY = "StreamingDriverMemory"
LEAK_SECONDS = 900
SCRIPT = """
import json
jvm, gateway = spark.sparkContext._jvm, spark.sparkContext._gateway
held = jvm.java.util.ArrayList()
DROPPED_BLOCKS, LEAST_PEAK = int(sys.argv[1]), float(sys.argv[2])
leaks = threading.Event()
def hold(batch, batch_id):
    # 3 MB a batch, each second.
    for _ in range(30):
        held.add(gateway.new_array(jvm.byte, 100_000))
    if not leaks.is_set() and held.size() > DROPPED_BLOCKS:
        # That of Py4J takes one after the other, until an error that is another one.
        held.retainAll(jvm.java.util.Collections.emptyList())
sidecar = attach(spark, http_port=-1)
query = start("orders", hold, every=1000)
seen = set()
began_at = time.monotonic()
def look():
    evaluated = sidecar._runtime.evaluated
    for alert in evaluated.alerts:
        if alert.name not in seen:
            seen.add(alert.name)
            kept = {key: alert.annotations.get(key, "") for key in ("summary", "driver_memory")}
            say("alert " + json.dumps({"name": alert.name, "at": time.monotonic() - began_at, **kept}))
    return evaluated.snapshot.resources.heap
peak = 0.0
while not leaks.is_set():
    time.sleep(1)
    heap = look()
    if heap is not None:
        share = heap.used_bytes / heap.max_bytes
        peak = max(peak, share)
        # It has risen once, for longer than a rise must, and a collection has found the garbage.
        has_fallen = LEAST_PEAK <= peak and (not LEAST_PEAK or share < peak - 0.2)
        if time.monotonic() - began_at > 150 and has_fallen:
            leaks.set()
say("peak " + json.dumps({"peak": peak, "at": time.monotonic() - began_at}))
while query.isActive:
    time.sleep(1)
    look()
ended_at = time.monotonic() - began_at
while "StreamingQueryFailed" not in seen:
    time.sleep(1)
    look()
say("end " + json.dumps({"at": ended_at}))
"""


@pytest.mark.parametrize(
    ("options", "least_peak"),
    [
        ("-XX:+UseSerialGC -Xms512m -Xmn48m", 0.85),
        ("-XX:+UseParallelGC -Xms512m -Xmn48m", 0.85),
        ("-XX:+UseG1GC", 0),
    ],
    ids=["Serial", "Parallel", "G1"],
)
def test_leak_is_reported_before_it_ends_a_query_and_garbage_is_not(tmp_path, options, least_peak):
    environment = {
        "PYSPARK_SUBMIT_ARGS": "--driver-memory 512m pyspark-shell",
        "SPARK_SUBMIT_OPTS": driver_options().replace("-XX:+UseSerialGC", options),
    }
    with Driver(SCRIPT, tmp_path, arguments=[1000, least_peak], **environment) as driver:

        def printed(start):
            lines = [line.partition(" ")[2] for line in driver.lines if line.startswith(start)]
            return [json.loads(line) for line in lines]

        (leak,) = until(lambda: printed("peak"), "the leak begins", LEAK_SECONDS)
        (end,) = until(lambda: printed("end"), "the query has failed", LEAK_SECONDS)
        alerts = {alert["name"]: alert for alert in printed("alert")}

    assert leak["peak"] >= least_peak
    lead = end["at"] - alerts[MEMORY]["at"]
    print(
        f"{options}: peak {leak['peak']:.0%}, leak {end['at'] - leak['at']:.0f} s, lead {lead:.0f} s"
    )
    assert alerts[MEMORY]["at"] > leak["at"]
    assert lead >= 15
    assert "of the heap in use" in alerts["StreamingQueryFailed"]["driver_memory"]
