"""How fast event logs are replayed.

``python -m benchmarks.replay``. Whether a replay, which decodes, applies and evaluates, is as fast
as a script that only parses the streaming events. Whole logs, the readers in turn and in changing
order, medians of the rounds, in seconds of CPU: the files are in memory already, and nothing
waits. The logs are a short one that Spark wrote (``recorded.zstd``), repeated: times and batch ids
continue as in a real log.
"""

import contextlib
import gc
import io
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import zstandard

from querypulse.replay.command import replay

from .harness import Row, at_most, report
from .recording import RECORDED

MIXED = "mixed log"
STREAMING = "streaming only"
MIXED_BYTES = 100_000_000
EVENTS = 8_000
ROUNDS = 3
OURS = "querypulse replay"
JSON = "json.loads on streaming events"
_STREAMING = b'{"Event":"org.apache.spark.sql.streaming.StreamingQueryListener'
_PROGRESS = _STREAMING + b"$QueryProgressEvent"
_WORK = re.compile(rb'\{"Event":"[\w.]*SparkListener(Task|Job|Stage|SQL|DriverAccum)')
_MILLIS = re.compile(rb'(?<=[":])1[78]\d{11}\b')


def main() -> int:
    """Measure, print, write."""
    samples: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        recording = ShortLog()
        mixed = _write(recording.mixed(MIXED_BYTES), Path(folder) / "mixed")
        streaming = _write(recording.streaming(EVENTS), Path(folder) / "streaming")
        for name, log in ((MIXED, mixed), (STREAMING, streaming)):
            samples[name] = _rounds(log)
            samples[f"{name}, zstd"] = _rounds(log.with_suffix(".zstd"))
        mixed_bytes = mixed.stat().st_size
    medians = {log: {who: median(s) for who, s in of.items()} for log, of in samples.items()}
    rows = [
        at_most(f"{log}: ours / json.loads", times[OURS] / times[JSON], 1, "x")
        for log, times in medians.items()
    ]
    rows += [
        Row(f"{MIXED}, unpacked", f"{mixed_bytes / medians[MIXED][OURS] / 1e6:,.0f} MB/s"),
        Row(f"{STREAMING}, one core", f"{EVENTS / medians[STREAMING][OURS]:,.0f} events/s"),
    ]
    report("replay", __doc__, rows, samples)
    return 0


def _rounds(log: Path) -> dict[str, list[float]]:
    """Run both readers in turn; ours must read each event that the other one parsed."""
    readers = {OURS: _replay, JSON: _json_loads}
    events = {name: read(log) for name, read in readers.items()}
    if events[OURS] != events[JSON]:
        raise RuntimeError(f"{log.name}: not the same events: {events}")
    samples: dict[str, list[float]] = {name: [] for name in readers}
    for number in range(ROUNDS):
        for name in sorted(readers, reverse=number % 2 == 1):
            samples[name].append(_seconds(readers[name], log))
    return samples


def _seconds(read: Callable[[Path], int], log: Path) -> float:
    gc.collect()
    began = time.process_time()
    read(log)
    return time.process_time() - began


def _replay(log: Path) -> int:
    """The whole command without Python's start: decode, apply, evaluate, print; its event count."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = replay([str(log)])
    match = re.search(r"([\d,]+) events", output.getvalue())
    if code or match is None:
        raise RuntimeError(f"the replay failed: {output.getvalue()}")
    return int(match[1].replace(",", ""))


def _json_loads(log: Path) -> int:
    """What a script would do, and do nothing with it; Spark writes the class first."""
    packed = log.suffix == ".zstd"
    events = 0
    with io.BufferedReader(zstandard.open(log, "rb")) if packed else log.open("rb") as lines:
        for line in lines:
            if line.startswith(_STREAMING):
                json.loads(line)
                events += 1
    return events


class ShortLog:
    """The recorded log: its first lines, and the lines that are repeated."""

    def __init__(self) -> None:
        text = zstandard.ZstdDecompressor().decompress(RECORDED.read_bytes())
        lines = text.splitlines(keepends=True)
        self._head = [line for line in lines if not _is_repeated(line) and not _ends(line)]
        self._body = [line for line in lines if _is_repeated(line)]
        progresses = [json.loads(line)["progress"] for line in self._body if _is_progress(line)]
        times = [_time(progress) for progress in progresses]
        self._span = max(times) - min(times) + timedelta(seconds=1)
        self._batches = max(progress["batchId"] for progress in progresses) + 1

    def mixed(self, size: int) -> Iterator[bytes]:
        """All kinds of lines, in all at least ``size`` bytes."""
        return self._repeated(self._body, -(-size // sum(map(len, self._body))))

    def streaming(self, events: int) -> Iterator[bytes]:
        """Streaming events alone, at least so many."""
        body = [line for line in self._body if _is_progress(line)]
        return self._repeated(body, -(-events // len(body)))

    def _repeated(self, body: list[bytes], times: int) -> Iterator[bytes]:
        yield from self._head
        for turn in range(times):
            yield from (self._later(line, turn) for line in body)

    def _later(self, line: bytes, turn: int) -> bytes:
        if not _is_progress(line):
            shift = round(turn * self._span.total_seconds() * 1000)
            return _MILLIS.sub(lambda millis: b"%d" % (int(millis[0]) + shift), line)
        event = json.loads(line)
        progress = event["progress"]
        later = (_time(progress) + turn * self._span).isoformat(timespec="milliseconds")
        progress["timestamp"] = later.replace("+00:00", "Z")
        progress["batchId"] += turn * self._batches
        return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def _write(lines: Iterator[bytes], path: Path) -> Path:
    """Write a log as it is, and once more compressed as Spark 4 does by default."""
    path.write_bytes(b"".join(lines))
    with path.open("rb") as source, path.with_suffix(".zstd").open("wb") as target:
        zstandard.ZstdCompressor(level=1).copy_stream(source, target)
    return path


def _time(progress: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))


def _is_progress(line: bytes) -> bool:
    return line.startswith(_PROGRESS)


def _is_repeated(line: bytes) -> bool:
    return _is_progress(line) or _WORK.match(line) is not None


def _ends(line: bytes) -> bool:
    return b"QueryTerminatedEvent" in line[:120] or b"ApplicationEnd" in line[:60]


if __name__ == "__main__":
    sys.exit(main())
