"""A job that keeps Python busy, or its interpreter's lock, causes no alert. Uses real Spark."""

from __future__ import annotations

import time

import pytest
from support.driver import START_SECONDS, Driver
from support.patience import PATIENCE_SECONDS
from support.queries import commits, rate, start

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]

HELD_SECONDS = 2.5
JOB = f"""
import re
def hold(length):
    "A hopeless search keeps the lock: no other thread runs meanwhile."
    used = time.thread_time()
    re.match("(a+)+$", "a" * length + "b")
    return time.thread_time() - used
sidecar = attach(
    spark, http_port=0, webhook_url=os.environ["PAGES"], stall_floor_seconds=30, start_grace_seconds=60,
)
for name in ("bronze", "silver"):
    start(name)
until_commits(sidecar, "bronze", "silver")
length = 20
while hold(length) < {HELD_SECONDS}:
    length += 1
for _ in range(4):
    hold(length)
batches = lambda: [query.last_commit_batch for query in sidecar.snapshot().queries]
before = batches()
while any(now <= then for now, then in zip(batches(), before)):
    time.sleep(0.05)
while not sidecar.flush(60):
    time.sleep(0.05)
say(f"alerts {{sidecar.alerts()}}")
os._exit(0)
"""


@pytest.mark.fault(
    "Time and pauses",
    "The job keeps the interpreter's lock for seconds, four times in a row",
    "No alert during it or afterwards",
)
def test_job_that_keeps_the_interpreters_lock_causes_no_alert(tmp_path, pages):
    with Driver(JOB, tmp_path, PAGES=pages.url) as driver:
        code = driver.wait(2 * START_SECONDS)

    assert code == 0, driver.errors
    assert driver.lines == ["alerts ()"]
    assert pages.reported == []


CPU_SECONDS = 1.5


@pytest.mark.fault(
    "Time and pauses",
    "`foreachBatch` of two queries computes in Python for seconds, batch after batch",
    "No alert, for them or for the query beside them",
)
def test_batches_that_compute_in_python_cause_no_alert(spark, watch, pages):
    sidecar = watch(stall_floor_seconds=30, start_grace_seconds=60)

    def compute(batch, batch_id):
        used = time.thread_time()
        while time.thread_time() - used < CPU_SECONDS:
            sum(range(1000))

    for name in ("bronze", "silver"):
        start(rate(spark), name, compute)
    start(rate(spark), "beside")
    for name in ("bronze", "silver", "beside"):
        commits(sidecar, name, batches=4)
    assert sidecar.flush(PATIENCE_SECONDS)

    assert sidecar.alerts() == ()
    assert pages.reported == []
