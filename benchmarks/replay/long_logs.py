"""Long event logs made of a short recorded one, whose events are repeated.

Times and batch ids continue as in a real log; everything else is what Spark wrote.
"""

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import zstandard

from .recording import RECORDED

STREAMING = b'{"Event":"org.apache.spark.sql.streaming.StreamingQueryListener'
_PROGRESS = STREAMING + b"$QueryProgressEvent"
_WORK = re.compile(rb'\{"Event":"[\w.]*SparkListener(Task|Job|Stage|SQL|DriverAccum)')
_MILLIS = re.compile(rb'(?<=[":])1[78]\d{11}\b')


class ShortLog:
    """The short log: its first lines, and the lines that are repeated."""

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
        return self._repeated(self._head, self._body, -(-size // sum(map(len, self._body))))

    def streaming(self, events: int) -> Iterator[bytes]:
        """Streaming events alone, at least so many."""
        body = [line for line in self._body if _is_progress(line)]
        return self._repeated(self._head, body, -(-events // len(body)))

    def _repeated(self, head: list[bytes], body: list[bytes], times: int) -> Iterator[bytes]:
        yield from head
        for turn in range(times):
            yield from (self._later(line, turn) for line in body)

    def _later(self, line: bytes, turn: int) -> bytes:
        if _is_progress(line):
            return self._later_batch(line, turn)
        shift = round(turn * self._span.total_seconds() * 1000)
        return _MILLIS.sub(lambda millis: b"%d" % (int(millis[0]) + shift), line)

    def _later_batch(self, line: bytes, turn: int) -> bytes:
        event = json.loads(line)
        progress = event["progress"]
        later = (_time(progress) + turn * self._span).isoformat(timespec="milliseconds")
        progress["timestamp"] = later.replace("+00:00", "Z")
        progress["batchId"] += turn * self._batches
        return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def write(lines: Iterator[bytes], path: Path) -> list[Path]:
    """Write a log as it is, and once more compressed as Spark 4 does by default."""
    packed = path.with_suffix(".zstd")
    path.write_bytes(b"".join(lines))
    with path.open("rb") as source, packed.open("wb") as target:
        zstandard.ZstdCompressor(level=1).copy_stream(source, target)
    return [path, packed]


def _time(progress: dict[str, str]) -> datetime:
    return datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))


def _is_progress(line: bytes) -> bool:
    return line.startswith(_PROGRESS)


def _is_repeated(line: bytes) -> bool:
    return _is_progress(line) or _WORK.match(line) is not None


def _ends(line: bytes) -> bool:
    return b"QueryTerminatedEvent" in line[:120] or b"ApplicationEnd" in line[:60]
