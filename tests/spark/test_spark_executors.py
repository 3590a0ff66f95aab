"""On real Spark: executors that are lost again and again hold a batch, and one says so."""

from __future__ import annotations

import re

import pytest
from support.driver import HEADER, Driver

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

CLUSTER = HEADER.replace("local[2]", "local-cluster[2,1,1024]")
SPOT = """
# A worker and its executors go on, however many of these have been lost.
from pathlib import Path
jvm = spark.sparkContext._gateway.java_process if hasattr(spark.sparkContext._gateway, "java_process") else None

def executors():
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\\0")
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words:
                parents = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1]
                if str(os.getpid()) in (parent, parents):
                    found.append(int(folder.name))
        except OSError:
            pass
    return found

def lose():
    # A new executor lives for as long as its first tasks take, and the results go with it.
    while not over.wait(5):
        for process in executors()[:1]:
            os.kill(process, signal.SIGKILL)

over, lossy = threading.Event(), threading.Event()
def work(batch, batch_id):
    if lossy.is_set():
        slow = "java_method('java.lang.Thread', 'sleep', 1500L) is null as slept"
        tasks = batch.sparkSession.range(0, 40, 1, 40).selectExpr("id", slow)
        tasks.repartition(2).count()

sidecar = attach(spark, webhook_url=os.environ["PAGES"], stall_floor_seconds=20)
start("spotted", work)
until_commits(sidecar, "spotted")
say("commits")
time.sleep(3)
lossy.set()
time.sleep(4)
threading.Thread(target=lose, daemon=True).start()
began = time.monotonic()
until(lambda: any(q.state in ("stalled", "slow") for q in sidecar.snapshot().queries) or time.monotonic() - began > float(os.environ["LIMIT"]))
say(f"after {time.monotonic() - began:.0f} s: {[(q.state, q.reason) for q in sidecar.snapshot().queries]}")
until(lambda: any("executors_lost" in q.reason for q in sidecar.snapshot().queries) or time.monotonic() - began > float(os.environ["LIMIT"]))
say(f"after {time.monotonic() - began:.0f} s: {[(q.state, q.reason) for q in sidecar.snapshot().queries]}")
over.set()
lossy.clear()
"""
