"""A job that keeps Python busy, or its interpreter's lock, causes no alert. Uses real Spark."""

from __future__ import annotations

import time

import pytest
from support.driver import Driver
from support.queries import commits, rate, start

pytestmark = pytest.mark.spark

JOB = """
import re
def hold(length):
    "A hopeless search keeps the lock: no other thread runs meanwhile."
    began = time.monotonic()
    re.match("(a+)+$", "a" * length + "b")
    return time.monotonic() - began
sidecar = attach(
    spark, http_port=0, webhook_url=os.environ["PAGES"], stall_floor_seconds=8, start_grace_seconds=12,
)
for name in ("bronze", "silver"):
    start(name)
until_commits(sidecar, "bronze", "silver")
length = 20
while hold(length) < 2.5:
    length += 1
held = [hold(length) for _ in range(4)]
time.sleep(3)
say(f"held {max(held):.1f}")
sidecar.flush()
say(f"alerts {len(sidecar.alerts())}")
for query in spark.streams.active:
    assert query.lastProgress["batchId"] > 0
os._exit(0)
"""


@pytest.mark.fault(
    "Time and pauses",
    "The job keeps the interpreter's lock for seconds, four times in a row",
    "No alert during it or afterwards",
)
def test_job_that_keeps_the_interpreters_lock_causes_no_alert(tmp_path, pages, measured):
    with Driver(JOB, tmp_path, PAGES=pages.url) as driver:
        code = driver.wait(180)

    held = float(driver.lines[0].removeprefix("held "))
    measured(f"held for up to {held:.1f} s at a time")
    assert code == 0, driver.errors
    assert held > 1.0
    assert driver.lines[1] == "alerts 0"
    assert pages.reported == []


CPU_SECONDS = 1.5
WINDOW = {"stall_floor_seconds": 12, "start_grace_seconds": 24}


@pytest.mark.fault(
    "Time and pauses",
    "`foreachBatch` of two queries computes in Python for seconds, batch after batch",
    "No alert, for them or for the query beside them",
)
def test_batches_that_compute_in_python_cause_no_alert(spark, watch, pages, measured):
    sidecar, seconds = watch(**WINDOW), []

    def compute(batch, batch_id):
        began, used = time.monotonic(), time.thread_time()
        while time.thread_time() - used < CPU_SECONDS:
            sum(range(1000))
        seconds.append(time.monotonic() - began)

    for name in ("bronze", "silver"):
        start(rate(spark), name, compute)
    start(rate(spark), "beside")
    for name in ("bronze", "silver"):
        commits(sidecar, name, batches=4, timeout=90)
    commits(sidecar, "beside", batches=4)
    sidecar.flush()

    measured(f"{len(seconds)} batches, up to {max(seconds):.1f} s each")
    assert sidecar.alerts() == ()
    assert pages.reported == []
