"""A child process that keeps rows on disk until it is killed.

Run as ``python -I spooling.py FOLDER MODE``; it prints "ready" once it does what ``MODE`` says.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from pathlib import Path

from querypulse.alerting.alert import Alert, Incident
from querypulse.alerting.outbox_entry import DeliveryState, OutboxEntry, queued
from querypulse.alerting.spool import Spool
from querypulse.core.guard import Guard

WALL = 1_700_000_000.0
PATIENCE_SECONDS = 20.0


def entry(
    number: int, state: DeliveryState = DeliveryState.NOTHING, size: int = 100
) -> OutboxEntry:
    labels = {
        "alertname": "StreamingQueryFailed",
        "app": "etl",
        "query": f"q{number}",
        "severity": "critical",
    }
    incident = Incident((Alert(labels, {"summary": "x" * size}, WALL),))
    fresh = queued(incident, WALL)
    return OutboxEntry(
        incident,
        state,
        0,
        None if state is DeliveryState.NOTHING else WALL,
        fresh.queued_at,
        dead=False,
    )


def ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def main(folder: Path, mode: str) -> None:
    guard = Guard()
    if mode == "full":
        # SQLite sees a full disk as a failing write.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
    if mode == "nobody":
        os.setuid(65534)
    spool = Spool(folder, "etl", guard)
    spool.load()
    if mode == "busy writer":
        write_for_ever(spool)
    size = 200_000 if mode == "full" else 100
    spool.offer("pager", (entry(1, size=size), entry(2, DeliveryState.FIRING)))
    if mode == "full":
        wait_for_problem(spool)
    flushed = spool.flush(PATIENCE_SECONDS if mode == "holds" else 1.0)
    if mode == "holds":
        ready()
        time.sleep(PATIENCE_SECONDS)
    began = time.monotonic()
    spool.close(1.0)
    print(
        flushed, spool.problem.replace("\n", " "), dict(guard.errors), time.monotonic() - began < 5
    )


def wait_for_problem(spool: Spool) -> None:
    """Wait for the failed write, which takes a while on a busy machine."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while not spool.problem and time.monotonic() < ends:
        time.sleep(0.01)


def write_for_ever(spool: Spool) -> None:
    """Alternate between all rows reported and none, so that a torn write would show."""
    ready()
    number = 0
    while True:
        number += 1
        reported = DeliveryState.FIRING if number % 2 else DeliveryState.NOTHING
        spool.offer("pager", tuple(entry(one, reported, size=3000) for one in range(20)))
        spool.offer("chat", tuple(entry(one, reported, size=3000) for one in range(20)))
        time.sleep(0.001)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
