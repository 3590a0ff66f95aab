"""Hours of healthy work raise no alert, then a death and a hang are reported. ``make soak`` runs it.

Queries of twenty kinds share a driver with other load, under the default limits.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import pytest
import requests
from support.failing_workloads import Blow, die
from support.healthy_workloads import continuous, event_time_of_the_day
from support.patience import PATIENCE_SECONDS
from support.queries import shown, until

MINUTES = float(os.environ.get("SOAK_MINUTES", "0"))
SECONDS = MINUTES * 60.0
pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.delta,
    pytest.mark.soak,
    pytest.mark.nightly,
    pytest.mark.timeout(SECONDS + 1500.0),
]

EVERY_SECONDS = 5.0
BRISK = {"processingTime": "3 seconds"}
STEADY = {"processingTime": "10 seconds"}
MINUTELY = {"processingTime": "60 seconds"}
QUIET_SECONDS, RESTART_SECONDS, FAILURE_SECONDS = 240.0, 120.0, 1200.0
"""Between two rows of a quiet source, two planned restarts, and two expected errors."""
TASKS = 24
"""Twice the slots of the tests' Spark."""
BLOCKED_SECONDS, MOVED_SECONDS = 180.0, 30.0
"""Blocked Python is critical after so long, which counts from when the batch last moved."""

# -- sources -----------------------------------------------------------------------------------


def bursts(harness):
    """Three times the allowed lag arrives at once, and is read in some batches."""
    topic = harness.kafka.topic()
    harness.feed(topic, 3000, every=60)
    stream = harness.stream(topic, maxOffsetsPerTrigger=500)
    harness.start(stream, "bursts", trigger=BRISK)


def quiet_topic(harness):
    topic = harness.kafka.topic(partitions=2)
    harness.put(topic)
    harness.feed(topic, every=QUIET_SECONDS)
    harness.start(harness.stream(topic), "quiet_topic", trigger=BRISK)


def quiet_folder(harness):
    drop_files(harness, "quiet_folder", QUIET_SECONDS)
    harness.start(harness.files("quiet_folder"), "quiet_folder", trigger=BRISK)


def drop_files(harness, name, every):
    """Add a file now, and then one after each interval."""
    harness.files(name)
    harness.drop(name, 0, 0)

    def go_on():
        number = 0
        while not harness.closing.wait(every):
            number += 1
            harness.drop(name, number, number)

    harness.help(go_on)


# -- event times and state -----------------------------------------------------------------------


def late_rows(harness):
    """One row of a hundred is late, which is one in nearly each batch."""
    late = "timestamp - CASE WHEN value % 100 = 0 THEN INTERVAL 1 HOUR ELSE INTERVAL 0 HOUR END"
    events = harness.rate().selectExpr(f"{late} AS at").withWatermark("at", "10 seconds")
    harness.start(events.groupBy("at").count(), "late_rows", trigger=STEADY)


def hourly(harness):
    """Its event times are whole hours, so that an hour of state is open all the time."""
    events = harness.rate().selectExpr("date_trunc('HOUR', timestamp) AS at", "value % 5 AS key")
    counted = events.withWatermark("at", "1 minute").groupBy("at", "key").count()
    harness.start(counted, "hourly", trigger=STEADY)


def joined(harness):
    one, two = (harness.rate().withWatermark("timestamp", "5 seconds") for _ in range(2))
    harness.start(one.join(two, "timestamp"), "joined", trigger=STEADY)


def without_duplicates(harness):
    seconds = harness.rate().selectExpr("date_trunc('SECOND', timestamp) AS at", "value % 5 AS key")
    distinct = seconds.withWatermark("at", "5 seconds").dropDuplicates(["at", "key"])
    harness.start(distinct, "without_duplicates", trigger=STEADY)


# -- batches and triggers ------------------------------------------------------------------------


def dying(harness):
    """Its function works, until it is struck at the end."""
    blow = Blow(harness, die)
    harness.start(harness.rate(), "dying", blow, trigger=BRISK)
    return blow


def hanging(harness):
    """Its function takes long now and then; at the end it asks a service that does not answer."""
    service = socket.create_server(("127.0.0.1", 0))
    harness.at_close(service.close)
    url = f"http://127.0.0.1:{service.getsockname()[1]}"
    blow = Blow(harness, lambda batch: requests.get(url))

    def work(batch, number):
        blow(batch, number)
        if number % 10 == 9:
            harness.closing.wait(12)

    harness.start(harness.rate(), "hanging", work, trigger=BRISK)
    return blow


def unnamed(harness):
    harness.start(harness.rate(), None, trigger=STEADY)


def rare_batches(harness):
    harness.start(harness.rate(), "rare_batches", trigger=MINUTELY)


def available_now(harness):
    drop_files(harness, "available_now", 5)
    source = partial(harness.files, "available_now")
    run_again(harness, "available_now", source, {"availableNow": True}, 15)


def once(harness):
    topic = harness.kafka.topic()
    harness.feed(topic, 10)
    run_again(harness, "once", partial(harness.stream, topic), {"once": True}, 30)


def run_again(harness, name, source, trigger, pause):
    """Run a query to its end again and again."""

    def go_on():
        query = harness.start(source(), name, trigger=trigger)
        while not harness.closing.wait(pause):
            if not query.isActive:
                query = harness.start(source(), name, trigger=trigger)

    harness.help(go_on)


def async_tracking(harness):
    topic = harness.kafka.topic()
    harness.feed(topic, 10)
    harness.start(
        harness.stream(topic), "async_tracking", trigger=BRISK, asyncProgressTrackingEnabled=True
    )


def to_delta(harness):
    path = str(harness.folder("to_delta") / "table")
    harness.start(harness.rate(), "to_delta", "delta", trigger=STEADY, path=path)


# -- restarts --------------------------------------------------------------------------------------


def planned_restarts(harness, sidecar):
    restart(harness, sidecar, "planned_restarts", ["planned_restarts"])


def blue_green(harness, sidecar):
    """Each restart gives it the other name."""
    restart(harness, sidecar, "blue_green", ["blue", "green"])


def restart(harness, sidecar, checkpoint, names):
    """Start a query, and restart it as planned, with each name in turn."""
    turns = cycle(names)

    def start():
        stream, name = harness.rate(), next(turns)
        return harness.start(stream, name, trigger=BRISK, checkpoint=checkpoint)

    query = start()

    def go_on():
        current = query
        while not harness.closing.wait(RESTART_SECONDS):
            sidecar.expect_stop(current)
            current.stop()
            current = start()

    harness.help(go_on)


class SchemaChanged(Exception):
    """An error that is part of a job's life."""


def supervised(harness, sidecar):
    """It fails now and then with an error that is expected, and ``supervise`` starts it again."""
    fails_at = time.monotonic() + PATIENCE_SECONDS

    def fail_sometimes(batch, number):
        nonlocal fails_at
        if time.monotonic() > fails_at:
            fails_at = time.monotonic() + FAILURE_SECONDS
            raise SchemaChanged("the table has a new column")

    start = lambda: harness.start(harness.rate(), "supervised", fail_sometimes, trigger=BRISK)
    # It ends when the sidecar is closed.
    threading.Thread(target=sidecar.supervise, args=({"supervised": start},), daemon=True).start()


# -- all of it -------------------------------------------------------------------------------------

UNTOUCHED = (
    bursts,
    quiet_topic,
    quiet_folder,
    late_rows,
    hourly,
    event_time_of_the_day,
    joined,
    without_duplicates,
    unnamed,
    rare_batches,
    available_now,
    once,
    continuous,
    async_tracking,
    to_delta,
)
RESTARTED = (planned_restarts, blue_green, supervised)
STRUCK = (dying, hanging)
NAMES = tuple(kind.__name__ for kind in (*UNTOUCHED, *RESTARTED, *STRUCK))
QUIET = {"quiet_topic", "quiet_folder"}
EXPECTED_WARNINGS = {
    # Documented: an expected error is a warning.
    ("StreamingQueryFailed", "supervised"),
}


def other_load(harness):
    """Jobs that hold all slots for ten seconds of each minute, and a process that computes."""
    sleep = "java_method('java.lang.Thread', 'sleep', 5000L)"
    tasks = harness.spark.range(0, TASKS, 1, TASKS).selectExpr(sleep)
    harness.repeat(tasks.collect, 50)
    compute = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"
    command = [sys.executable, "-c", compute]
    harness.repeat(lambda: subprocess.run(command, check=True), 100)


MORE_THREADS, MORE_DESCRIPTORS, MORE_MEGABYTES, MORE_SERIES = 5, 40, 40, 40
"""What the last third may have more of than the second: queries restart, files are open."""


class Resources(NamedTuple):
    """What the process and its JVM hold, and what the sidecar serves."""

    threads: int
    descriptors: int
    jvm_descriptors: int
    megabytes: float
    series: int

    @classmethod
    def now(cls, spark, sidecar):
        jvm = spark.sparkContext._gateway.proc.pid
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        metrics = requests.get(sidecar.url + "/metrics", timeout=PATIENCE_SECONDS).text
        return cls(
            threading.active_count(),
            len(list(Path("/proc/self/fd").iterdir())),
            len(list(Path(f"/proc/{jvm}/fd").iterdir())),
            pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
            sum(not line.startswith("#") for line in metrics.splitlines()),
        )


def most(samples):
    """The most of each resource."""
    return Resources(*map(max, zip(*samples, strict=True)))


class Soak:
    """Watches the sidecar and its pages, and prints a line for each minute and each new alert."""

    def __init__(self, harness, sidecar, pages) -> None:
        self.samples: list[Resources] = []
        self.alerts: dict[tuple[str, str, str], str] = {}
        self._harness = harness
        self._sidecar = sidecar
        self._pages = pages
        self._began_at = time.monotonic()

    def look(self) -> None:
        """Note the alerts and resources of this moment."""
        for alert in self._sidecar.alerts():
            key = (alert.labels["severity"], alert.name, alert.query)
            if key not in self.alerts:
                self.alerts[key] = alert.annotations["reason"]
                self._say(f"{key}: {alert.annotations['reason']}")
        self.samples.append(Resources.now(self._harness.spark, self._sidecar))
        if len(self.samples) % 12 == 1:
            self._say(f"{self.samples[-1]}, batches {self.batches()}")

    def batches(self) -> dict[str, int]:
        """How many batches each kind has committed."""
        return {name: self._harness.committed(name) + 1 for name in NAMES}

    def unexplained(self) -> list[object]:
        """The alerts and pages that healthy work should not cause."""
        alerts = [
            (*key, reason)
            for key, reason in self.alerts.items()
            if key[0] != "warning" or key[1:] not in EXPECTED_WARNINGS
        ]
        return alerts + [page for page in self._pages.pages if page.what not in EXPECTED_WARNINGS]

    def _say(self, text: str) -> None:
        print(f"soak, {(time.monotonic() - self._began_at) / 60:.1f} min: {text}", flush=True)


@pytest.fixture
def harness(spark, kafka, watch, tmp_path):
    """Depends on ``watch`` so that it is closed before its queries are stopped."""
    from support.connectors import KafkaHarness

    harness = KafkaHarness(spark, tmp_path, kafka)
    yield harness
    harness.close()


@pytest.mark.fault(
    "Time and pauses",
    "Healthy queries of twenty kinds beside other load for as long as `make soak` says; then one"
    " dies and one hangs",
    "No alert before; threads, descriptors, memory and series stay flat; both are reported",
)
def test_healthy_work_raises_no_alert_and_leaves_nothing_behind(
    spark, harness, watch, pages, measured
):
    sidecar = watch(expected_errors=["SchemaChanged"], resolve_after_seconds=30)
    for kind in UNTOUCHED:
        kind(harness)
    for kind in RESTARTED:
        kind(harness, sidecar)
    dying, hanging = (kind(harness) for kind in STRUCK)
    soak = Soak(harness, sidecar, pages)
    until(lambda: min(soak.batches().values()) > 0, "all commit")
    other_load(harness)
    ends_at = time.monotonic() + SECONDS
    halfway: dict[str, int] = {}
    while time.monotonic() < ends_at:
        time.sleep(EVERY_SECONDS)
        soak.look()
        if not halfway and time.monotonic() > ends_at - SECONDS / 2:
            halfway = soak.batches()

    batches = soak.batches()
    third = len(soak.samples) // 3
    early, late = most(soak.samples[third : 2 * third]), most(soak.samples[2 * third :])
    growth = ", ".join(
        f"{name} {getattr(early, name):.0f} then {getattr(late, name):.0f}"
        for name in Resources._fields
    )
    measured(f"{MINUTES:.0f} minutes, {len(batches)} queries, {sum(batches.values())} batches")
    measured(growth)
    unexplained = soak.unexplained()
    print(f"soak: {growth}; {batches}; {soak.alerts}", flush=True)

    hung_at, died_at = strike(hanging), strike(dying)
    death = report_in_time(sidecar, pages, "StreamingQueryFailed", "dying", has_failed)
    hang = report_in_time(sidecar, pages, "StreamingQueryStalled", "hanging", hangs_too_long)
    seconds = f"death {death.at - died_at:.2f} s, hang {hang.at - hung_at:.1f} s to the page"
    measured(seconds)
    print(f"soak: {seconds}; {hang}", flush=True)
    assert unexplained == []
    assert {name for name in NAMES if batches[name] == halfway[name]} <= QUIET
    assert late.threads <= early.threads + MORE_THREADS
    assert late.descriptors <= early.descriptors + MORE_DESCRIPTORS
    assert late.jvm_descriptors <= early.jvm_descriptors + MORE_DESCRIPTORS
    assert late.megabytes <= early.megabytes + MORE_MEGABYTES
    assert late.series <= early.series + MORE_SERIES
    assert death.at < hang.at
    others = [page for page in pages.pages if page.labels["query"] not in ("dying", "hanging")]
    assert [page for page in others if page.what not in EXPECTED_WARNINGS] == []


def strike(blow):
    """Let the next batch fail or hang; return when it does."""
    blow.struck.set()
    until(blow.began.is_set, "a batch is struck")
    return time.monotonic()


def report_in_time(sidecar, pages, alertname, name, is_overdue):
    """Wait for a critical page; no state that is published before its alert shows it overdue."""

    def is_critical():
        query = shown(sidecar, name)
        # Asked for later, so that they are of the same evaluation or of a later one.
        alerts = [alert for alert in sidecar.alerts() if alert.is_critical]
        if (alertname, name) in {(alert.name, alert.query) for alert in alerts}:
            return True
        assert not is_overdue(query), f"{name} is not reported in time: {query}"
        return False

    until(is_critical, f"{alertname} of {name} is critical")
    return until(partial(critical_page, pages, alertname, name), f"{name} pages")


def critical_page(pages, alertname, name):
    wanted = (alertname, name)
    of_query = (page for page in pages.pages if page.what == wanted)
    return next((page for page in of_query if page.labels["severity"] == "critical"), None)


def has_failed(query):
    return query.state == "failed"


def hangs_too_long(query):
    allowed = max(query.window_seconds, BLOCKED_SECONDS) + MOVED_SECONDS
    return (query.batch_in_flight_seconds or 0.0) > allowed
