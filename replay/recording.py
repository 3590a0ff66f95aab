"""Parses the lines of a recording, with their times.

A line is one of: Spark's event log (one JSON object per line, its class under ``Event``), the
listener's own JSON, a progress as in ``recentProgress``, or a ``{"kind", "shape", "text"}`` line
of this project's recorder. A file may mix them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

import msgspec

from ..listener.events import DecodeError, Event, EventKind, Progress, decode

# -- times ------------------------------------------------------------------------------------
# The time at which a line was written, if it contains one: Unix seconds.


# Only these keys hold the time of the event: others hold durations, or much older times.
_MILLIS = re.compile(
    rb'"(?:Timestamp|(?:Submission|Launch|Finish|Completion) Time|time)":\s?(\d{13})\b'
)


class _Timed(msgspec.Struct):
    timestamp: datetime | None = None


_TIMED = msgspec.json.Decoder(_Timed)


def latest_millis(line: bytes) -> float | None:
    """The latest time in a line of Spark's own events; None if it has none."""
    return max((int(millis) / 1000 for millis in _MILLIS.findall(line)), default=None)


def timestamp(text: str | bytes) -> float | None:
    """The ``timestamp`` in the JSON of a start or an idle trigger; None if it has none.

    Raises:
        msgspec.MsgspecError: this is not the JSON of an event.

    """
    stamp = _TIMED.decode(text).timestamp
    if stamp is not None and stamp.tzinfo is None:
        stamp = stamp.replace(tzinfo=timezone.utc)
    return None if stamp is None else stamp.timestamp()


# -- recording --------------------------------------------------------------------------------


Entry = tuple[float | None, Event | str | None]
"""A streaming event; or the name of an application that began; or None, when it stopped.

Before it: when Spark posted it, in Unix seconds of the log's clock, None if unknown.
"""

_STREAMING = b"org.apache.spark.sql.streaming.StreamingQueryListener$Query%bEvent"
_EVENTS = {
    _STREAMING % b"Started": EventKind.STARTED,
    _STREAMING % b"Progress": EventKind.PROGRESS,
    _STREAMING % b"Idle": EventKind.IDLE,
    _STREAMING % b"Terminated": EventKind.TERMINATED,
}
_START = b"SparkListenerApplicationStart"
_END = b"SparkListenerApplicationEnd"
# Spark writes the class first: nine lines in ten can be skipped without parsing. The newest
# skipped line is kept for its time.
_SKIPPED = tuple(
    b'{"Event":"%bSparkListener%b"' % (package, name)
    for package, names in (
        (b"", b"TaskEnd TaskStart JobStart JobEnd StageSubmitted StageCompleted"),
        (b"org.apache.spark.sql.execution.ui.", b"SQLExecutionStart SQLExecutionEnd"),
        (b"", b"BlockManagerAdded ExecutorAdded ExecutorRemoved"),
    )
    for name in names.split()
)
_NAME = re.compile(rb'\s*\{\s*"Event"\s*:\s*"([^"]+)"')
_NOT_AN_EVENT = (DecodeError, msgspec.MsgspecError, UnicodeError, OverflowError, RecursionError)


class Reader:
    """Reads the lines of one application.

    ``unread`` counts the lines that could not be parsed, without a last line that a killed
    driver left unfinished.
    """

    def __init__(self) -> None:
        self.unread = 0
        self._understood = False
        self._newest: float | None = None
        self._timed = b""

    @property
    def understood(self) -> bool:
        """Whether any line was understood."""
        return self._understood or bool(self._timed)

    def newest_time(self) -> float | None:
        """The newest time in any line so far."""
        latest = latest_millis(self._timed)
        if latest is not None:
            self._newest = max(latest, self._newest or latest)
        return self._newest

    def entries(self, lines: Iterable[bytes]) -> Iterator[Entry]:
        """The entries about an application and its streaming queries, in order."""
        for line in lines:
            if line.startswith(_SKIPPED):
                self._timed = line
                continue
            if line.isspace():
                continue
            try:
                entry = self._read(line)
            except _NOT_AN_EVENT:
                self.unread += line.endswith(b"\n")
                continue
            self._understood = True
            if entry is not None:
                yield entry

    def _read(self, line: bytes) -> Entry | None:
        match = _NAME.match(line)
        if match is None:
            return self._received(*_kind_and_json(line))
        name = match.group(1)
        if name in _EVENTS:
            return self._received(_EVENTS[name], line)
        if name == _START:
            # The times of earlier applications do not count.
            self._timed, self._newest = line, None
            return self.newest_time(), _APP_START.decode(line).name
        if name == _END:
            self._timed = line
            return self.newest_time(), None
        return None

    def _received(self, kind: EventKind, text: str | bytes) -> Entry:
        """An event; one without a time, such as a query's end, gets the newest time so far."""
        event = decode(kind, text)
        at = event.timestamp if isinstance(event, Progress) else timestamp(text)
        if at is None:
            return self.newest_time(), event
        if isinstance(event, Progress):
            at += event.batch_seconds or 0.0
        self._newest = max(at, self._newest or at)
        return at, event


class _AppStart(msgspec.Struct, rename={"name": "App Name"}):
    name: str = ""


class _Object(msgspec.Struct):
    """Any object; only its presence matters."""


class _Line(msgspec.Struct, rename={"run_id": "runId", "batch_id": "batchId"}):
    """The keys that distinguish the kinds of lines."""

    kind: EventKind | None = None
    text: str | None = None
    progress: _Object | None = None
    run_id: str | None = None
    batch_id: int | None = None
    name: str | msgspec.UnsetType | None = msgspec.UNSET
    timestamp: str | None = None


_APP_START = msgspec.json.Decoder(_AppStart)
_LINE = msgspec.json.Decoder(_Line)


def _kind_and_json(text: bytes) -> tuple[EventKind, str | bytes]:
    """The kind of event in a line of a recording, and its JSON.

    Raises:
        DecodeError: the line is not an event.

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
