"""What the lines of a recording say, and when.

Spark's event log (one JSON object a line, its class under ``Event``), the listener's own
JSON, progresses as ``recentProgress`` holds them, and the ``{"kind", "shape", "text"}`` lines
of this project's recorder, in any mixture.
"""

from __future__ import annotations

import re

import msgspec

from ...listener.decode import DecodeError, decode
from ...listener.events import Event, EventKind, Progress
from .times import latest_millis, timestamp


class Began(msgspec.Struct, frozen=True):
    """An application began; ``at`` is Unix seconds of the log's clock, None where untold."""

    at: float | None
    name: str


class Heard(msgspec.Struct, frozen=True):
    """A streaming event, and when Spark posted it."""

    at: float | None
    event: Event


class Stopped(msgspec.Struct, frozen=True):
    """The application stopped its SparkContext."""

    at: float | None


Said = Began | Heard | Stopped

# Spark writes the class first: looking at the head of a line spares parsing most of them.
_HEAD = re.compile(
    rb'\s*\{"Event":\s?"(?:[\w.]*\.)?'
    rb'(?:StreamingQueryListener\$Query(?P<streaming>\w+)Event|SparkListener(?P<other>\w+))"'
)
_KINDS = {
    b"Started": EventKind.STARTED,
    b"Progress": EventKind.PROGRESS,
    b"Idle": EventKind.IDLE,
    b"Terminated": EventKind.TERMINATED,
}
_TIMED = frozenset(
    {
        b"ApplicationStart",
        b"ApplicationEnd",
        b"BlockManagerAdded",
        b"ExecutorAdded",
        b"ExecutorRemoved",
        b"JobStart",
        b"JobEnd",
        b"SQLExecutionStart",
        b"SQLExecutionEnd",
        b"StageSubmitted",
        b"StageCompleted",
        b"TaskStart",
        b"TaskEnd",
    }
)
_NOT_AN_EVENT = (DecodeError, msgspec.MsgspecError, UnicodeError, OverflowError, RecursionError)


class Reader:
    """Reads the lines of one application.

    ``understood`` counts the lines that were something, ``unread`` those that were nothing;
    a last line that a killed driver left unfinished is neither.
    """

    def __init__(self) -> None:
        self.understood = 0
        self.unread = 0
        self._newest: float | None = None
        self._timed = b""

    @property
    def newest_time(self) -> float | None:
        """The newest time that any line has told so far."""
        told = latest_millis(self._timed)
        if told is not None:
            self._newest = max(told, self._newest or told)
            self._timed = b""
        return self._newest

    def read(self, line: bytes) -> Said | None:
        """What a line says; None when it says nothing of streaming queries."""
        try:
            said = self._read(line)
        except _NOT_AN_EVENT:
            self.unread += line.endswith(b"\n")
            return None
        self.understood += 1
        return said

    def _read(self, line: bytes) -> Said | None:
        head = _HEAD.match(line)
        if head is None:
            return self._heard(*_kind_and_json(line)) if line.strip() else None
        streaming, other = head.groups()
        if streaming is not None:
            return self._heard(_KINDS[streaming], line) if streaming in _KINDS else None
        if other in _TIMED:
            self._timed = line
        return self._application(other, line)

    def _heard(self, kind: EventKind, text: str | bytes) -> Heard:
        """An event; the end of a query tells no time, so it is the newest that was told."""
        event = decode(kind, text)
        at = timestamp(text)
        if at is None:
            return Heard(self.newest_time, event)
        if isinstance(event, Progress):
            at += event.batch_seconds or 0.0
        self._newest = max(at, self._newest or at)
        return Heard(at, event)

    def _application(self, other: bytes, line: bytes) -> Said | None:
        if other == b"ApplicationStart":
            return Began(self.newest_time, _APP_START.decode(line).name)
        if other == b"ApplicationEnd":
            return Stopped(self.newest_time)
        return None


class _AppStart(msgspec.Struct, rename={"name": "App Name"}):
    name: str = ""


class _Line(msgspec.Struct, rename={"run_id": "runId", "batch_id": "batchId"}):
    """The keys by which one kind of line is told from another."""

    kind: EventKind | None = None
    text: str | None = None
    progress: msgspec.Raw | None = None
    run_id: str | None = None
    batch_id: int | None = None
    name: str | msgspec.UnsetType | None = msgspec.UNSET
    timestamp: str | None = None


_APP_START = msgspec.json.Decoder(_AppStart)
_LINE = msgspec.json.Decoder(_Line)


def _kind_and_json(text: bytes) -> tuple[EventKind, str | bytes]:
    """Which event a line of a recording holds, and its JSON.

    Raises:
        DecodeError: it is none.

    """
    line = _LINE.decode(text)
    if line.kind is not None and line.text is not None:
        return line.kind, line.text
    if line.progress is not None:
        return EventKind.PROGRESS, text
    if line.run_id is None:
        raise DecodeError("no event")
    if line.batch_id is not None:
        return EventKind.PROGRESS, b'{"progress":%b}' % text
    if line.timestamp is None:
        return EventKind.TERMINATED, text
    return (EventKind.IDLE if line.name is msgspec.UNSET else EventKind.STARTED), text
