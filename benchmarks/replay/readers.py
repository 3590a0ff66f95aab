"""Who reads: ours, a reader that only parses the streaming events, and one that parses nothing."""

import contextlib
import io
import json
import re
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import IO

import zstandard

from querypulse.replay.command import ReplayRequest, replay

from .long_logs import STREAMING

OURS = "querypulse replay"
JSON = "json.loads on streaming events"
LINES = "reading the lines"
_EVENTS = re.compile(r"([\d,]+) events")


def ours(path: Path) -> int:
    """The whole command without Python's start: decode, fold, evaluate, print; its event count."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = replay(ReplayRequest((str(path),)))
    found = _EVENTS.search(said.getvalue())
    if code or found is None:
        raise RuntimeError(f"the replay failed: {said.getvalue()}")
    return int(found[1].replace(",", ""))


def json_loads(path: Path) -> int:
    """What a script would do, and do nothing with it; Spark writes the class first."""
    events = 0
    with opened(path) as lines:
        for line in lines:
            if line.startswith(STREAMING):
                json.loads(line)
                events += 1
    return events


def lines_only(path: Path) -> int:
    """The floor: the lines are there; no event is known."""
    with opened(path) as lines:
        for _ in lines:
            pass
    return 0


READERS = {OURS: ours, JSON: json_loads, LINES: lines_only}


def opened(path: Path) -> IO[bytes]:
    """A log's content, decompressed where its name says so."""
    if path.suffix == ".zstd":
        return io.BufferedReader(zstandard.open(path, "rb"))
    return path.open("rb")


ROUNDS = 5


def second_core(log: Path) -> float:
    """How many times as much work two processes do that only parse; 2 on two whole cores."""
    with ProcessPoolExecutor(2) as pool:
        # The first time starts the processes.
        list(pool.map(json_loads, (log, log)))
        return median(2 * _seconds(pool, log) / _seconds(pool, log, log) for _ in range(ROUNDS))


def _seconds(pool: ProcessPoolExecutor, *logs: Path) -> float:
    began = time.perf_counter()
    list(pool.map(json_loads, logs))
    return time.perf_counter() - began
