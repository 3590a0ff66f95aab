"""A child process that keeps rows on disk until it is killed.

Run as ``python -m support.spooling FOLDER MODE``; it prints "ready" once it does what ``MODE`` says.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

from support.deliveries import WALL, incident
from support.patience import NEVER, PATIENCE_SECONDS, ended, until

from querypulse.alerting.delivery import spool as spool_module
from querypulse.alerting.delivery.outbox import Known, OutboxRow
from querypulse.core.guard import Guard


def entry(number: int, known: Known = Known.NOTHING, size: int = 100) -> OutboxRow:
    sent_at = None if known is Known.NOTHING else WALL
    reported = incident(f"q{number}", summary="x" * size)
    return OutboxRow(reported, WALL, "0", known, "0", sent_at)


def ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def main(folder: Path, mode: str) -> None:
    guard = Guard()
    if mode == "full":
        # A file that may not grow further fails as a full disk does.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
    if mode == "nobody":
        os.setuid(65534)
    fails = mode in {"full", "nobody"}
    if fails:
        spool_module.RETRY_SECONDS = NEVER
    spool = spool_module.Spool(folder, "etl", guard)
    spool.load(PATIENCE_SECONDS)
    if mode == "busy writer":
        write_for_ever(spool)
    size = 200_000 if mode == "full" else 100
    spool.offer_rows("pager", (entry(1, size=size), entry(2, Known.FIRING)))
    if fails:
        until(lambda: spool.problem, "the problem is reported")
    flushed = spool.flush(0.1 if fails else PATIENCE_SECONDS)
    if mode == "holds":
        ready()
        threading.Event().wait()
    ended(lambda: spool.close(NEVER))
    print(flushed, spool.problem.replace("\n", " "), dict(guard.errors))


def write_for_ever(spool: spool_module.Spool) -> None:
    """Alternate between all rows reported and none, so that a torn write would show."""
    number = 0
    while True:
        number += 1
        reported = Known.FIRING if number % 2 else Known.NOTHING
        spool.offer_rows("pager", tuple(entry(number, reported, size=3000) for number in range(20)))
        spool.offer_rows("chat", tuple(entry(number, reported, size=3000) for number in range(20)))
        if number == 1:
            spool.flush(PATIENCE_SECONDS)
            ready()
        time.sleep(0.001)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
