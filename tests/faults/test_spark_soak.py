"""Hours of healthy work raise no alert and leave nothing behind. ``make soak`` runs it.

The queries are those that look unhealthy to a simple monitor, with windows of seconds.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from support.healthy_workloads import AFTER, BEFORE, SETTINGS
from support.queries import until

MINUTES = float(os.environ.get("SOAK_MINUTES", "0"))
SECONDS = MINUTES * 60.0
pytestmark = [
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.nightly,
    pytest.mark.timeout(SECONDS + 600.0),
]

MORE_THREADS, MORE_DESCRIPTORS, MORE_MEGABYTES = 5, 40, 40
"""What the second half may have more of than the first: queries restart, files are open."""
EVERY_SECONDS = 5.0


class Resources(NamedTuple):
    """What the process and its JVM hold."""

    threads: int
    descriptors: int
    jvm_descriptors: int
    megabytes: float

    @classmethod
    def now(cls, spark):
        jvm = spark.sparkContext._gateway.proc.pid
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(
            threading.active_count(),
            len(list(Path("/proc/self/fd").iterdir())),
            len(list(Path(f"/proc/{jvm}/fd").iterdir())),
            pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        )


def most(samples):
    """The most of each resource."""
    return Resources(*map(max, zip(*samples, strict=True)))


@pytest.mark.fault(
    "Time and pauses",
    "Healthy queries of every kind for as long as `make soak` says",
    "No alert; threads, descriptors and memory stay flat",
)
def test_healthy_work_raises_no_alert_and_leaves_nothing_behind(
    spark, harness, watch, pages, measured
):
    workloads = [workload for workload in (*BEFORE, *AFTER) if workload.name != "planned_stop"]
    queries = [workload.start(harness) for workload in workloads]
    until(lambda: all(query.recentProgress for query in queries[:5]), "they commit")
    sidecar = watch(**SETTINGS)
    samples, ends_at = [], time.monotonic() + SECONDS
    while time.monotonic() < ends_at:
        time.sleep(EVERY_SECONDS)
        samples.append(Resources.now(spark))

    third = len(samples) // 3
    early, late = most(samples[third : 2 * third]), most(samples[2 * third :])
    shown = ", ".join(
        f"{name} {getattr(early, name):.0f} then {getattr(late, name):.0f}"
        for name in Resources._fields
    )
    measured(f"{MINUTES:.0f} minutes, {len(queries)} queries: {shown}")
    assert pages.reported == []
    assert sidecar.alerts() == ()
    assert late.threads <= early.threads + MORE_THREADS
    assert late.descriptors <= early.descriptors + MORE_DESCRIPTORS
    assert late.jvm_descriptors <= early.jvm_descriptors + MORE_DESCRIPTORS
    assert late.megabytes <= early.megabytes + MORE_MEGABYTES
