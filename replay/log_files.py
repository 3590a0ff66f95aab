"""Log files: found, decompressed, read line by line, and parsed.

A line is one of: Spark's event log (one JSON object per line, its class under ``Event``), the
listener's own JSON, a progress as in ``recentProgress``, or a ``{"kind", "shape", "text"}`` line
of this project's recorder. A file may mix them.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from ..core import CommandError
from ..core.installed import NotInstalledError
from ..listener.events import DecodeError, Event, EventKind, Progress, decode
from ..recording.lines import first_part, part_number


class ReplayError(CommandError):
    """An input cannot be read or an output cannot be written; the message says which."""


# -- compression ------------------------------------------------------------------------------
# Opens a log for reading, decompressed by the codec in its name.
#
# Spark names the codec in the extension (``EventLogFileWriter.codecName``); ``.zst`` and ``.gz``
# are for recordings that users compress themselves.


READABLE = ("zstd", "zst", "gz")
ONLY_SPARK_READS = ("lz4", "snappy", "lzf")
"""Codecs whose streams have a format of their own in Java."""
IN_PROGRESS = ".inprogress"
AFTER_THE_CODEC = (IN_PROGRESS, ".compact")
GZIP_WINDOW = zlib.MAX_WBITS + 16
"""zlib's word for gzip's format."""
PACKED_BYTES = 4096
"""What is decompressed at a time: 4 MB at most with gzip, 128 MB with zstd."""


def decompressed(raw: BinaryIO, path: Path) -> tuple[Iterable[bytes], type[Exception]]:
    """The lines of ``raw``, the opened file ``path``, and its codec's error for damaged data.

    Raises:
        NotInstalledError: its codec needs a package that is not installed.
        ReplayError: only Spark itself reads its codec.

    """
    codec = codec_of(path)
    if codec in ONLY_SPARK_READS:
        raise ReplayError(
            f"{path}: the codec {codec} is not supported; unpack the log with Spark as "
            "docs/replay.md shows, or set spark.eventLog.compression.codec=zstd for new ones"
        )
    if not codec:
        return raw, OSError
    if codec == "gz":
        return _unpacked_lines(raw, lambda: zlib.decompressobj(GZIP_WINDOW), b"\0"), zlib.error
    try:
        import zstandard
    except ModuleNotFoundError as error:
        raise NotInstalledError(
            f"reading {path} needs the package {error.name}: pip install {error.name}"
        ) from None
    return _unpacked_lines(raw, zstandard.ZstdDecompressor().decompressobj), zstandard.ZstdError


def _unpacked_lines(
    raw: BinaryIO, new_stream: Callable[[], Any], padding: bytes = b""
) -> Iterator[bytes]:
    """The lines in compressed streams, one stream after another; ``padding`` may follow each.

    Raises:
        EOFError: the last stream has no end. All that could be read came before.

    """
    stream: Any = None
    begun: list[bytes] = []
    while packed := raw.read(PACKED_BYTES):
        while packed := packed.lstrip(padding if stream is not None and stream.eof else b""):
            if stream is None or stream.eof:
                stream = new_stream()
            lines, end, rest = stream.decompress(packed).rpartition(b"\n")
            if end:
                yield from io.BytesIO(b"".join((*begun, lines, end)))
                begun.clear()
            begun.append(rest)
            packed = stream.unused_data
    yield from io.BytesIO(b"".join(begun))
    if stream is not None and not stream.eof:
        raise EOFError


def codec_of(path: Path) -> str:
    """The codec in a log's name, such as ``zstd``; empty for a plain file."""
    codec = Path(_without_state(path)).suffix.removeprefix(".")
    return codec if codec in (*READABLE, *ONLY_SPARK_READS) else ""


def _without_state(path: Path) -> str:
    name = path.name
    for suffix in AFTER_THE_CODEC:
        name = name.removesuffix(suffix)
    return name


# -- applications -----------------------------------------------------------------------------
# Finds event logs: one file, or one folder of rolled files, is one application.
#
# Names are those of Spark's ``EventLogFileWriters.scala``: a rolled log is a folder
# ``eventlog_v2_<application>[_<attempt>]`` with ``events_<number>_...`` files; the newest
# ``.compact`` file replaces all files before it.


ROLLED = "eventlog_v2_"
COMPACT = ".compact"
_EVENTS = re.compile(r"events_(\d+)_.*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/.*")
_HIDDEN = (".", "_")


class Application(msgspec.Struct, frozen=True):
    """The files of one application, oldest first; ``label`` is its name until the log gives one."""

    path: str
    label: str
    files: tuple[str, ...]


def find_applications(paths: Iterable[str]) -> list[Application]:
    """Every application at or below ``paths``, each once, sorted by path.

    Raises:
        ReplayError: a path does not exist, is not local, or contains no log.

    """
    applications: dict[str, Application] = {}
    for text in paths:
        here = {application.path: application for application in _applications(_local(text))}
        if not here:
            raise ReplayError(f"{text}: no event log in this folder")
        applications |= here
    return list(applications.values())


def has_scheme(text: str) -> bool:
    """Whether this is a URI rather than a path: ``s3a://logs``, ``hdfs:/logs``."""
    return _SCHEME.fullmatch(text) is not None


def _local(text: str) -> Path:
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    elif has_scheme(text):
        raise ReplayError(
            f"{text}: only local and mounted paths can be read; mount it, or copy it here first"
        )
    path = Path(text)
    if not path.exists():
        raise ReplayError(f"{text}: no such file or folder")
    return path.absolute()


def _applications(path: Path) -> Iterator[Application]:
    if not path.is_dir():
        yield Application(str(path), _label(path), (str(path),))
    elif path.name.startswith(ROLLED):
        files = _rolled(path)
        if files:
            label = path.name.removeprefix(ROLLED)
            yield Application(str(path), label, tuple(map(str, files)))
    else:
        for child in _visible(path):
            yield from _applications(child)


def _visible(folder: Path) -> list[Path]:
    """The entries of a folder, without hidden files and without links to folders (cycles)."""
    try:
        paths = sorted(folder.iterdir(), key=_place_of)
    except OSError as error:
        raise ReplayError(f"{folder}: {error.strerror}") from None
    shown = [path for path in paths if not path.name.startswith(_HIDDEN)]
    return [path for path in shown if not (path.is_symlink() and path.is_dir())]


def _place_of(path: Path) -> tuple[str, int, str]:
    """Sort by name, and the files that continue a recording in their order after the first."""
    return first_part(path.stem), part_number(path.stem), path.name


def _rolled(folder: Path) -> list[Path]:
    """The files of a rolled log to read: the newest compacted one and all after it."""
    numbered = [
        (int(match.group(1)), path.name.endswith(COMPACT), path)
        for path in _visible(folder)
        if (match := _EVENTS.fullmatch(path.name))
    ]
    numbered.sort()
    compacted = [index for index, (_, compact, _) in enumerate(numbered) if compact]
    return [path for _, _, path in numbered[compacted[-1] if compacted else 0 :]]


def _is_being_written(path: Path) -> bool:
    """Whether Spark has not closed this file, because it runs or was killed."""
    folder = path.parent
    if not folder.name.startswith(ROLLED):
        return path.name.endswith(IN_PROGRESS)
    return any(folder.glob(f"appstatus_*{IN_PROGRESS}")) and path == _rolled(folder)[-1]


def _label(path: Path) -> str:
    """A file's name without the suffixes for state and codec."""
    return _without_state(path).removesuffix(f".{codec_of(path)}")


# -- lines ------------------------------------------------------------------------------------
# A log file, line by line, in constant memory.


BUFFER_BYTES = 1024 * 1024


class CountedFile(io.FileIO):
    """A file that reports the bytes of each read."""

    def __init__(self, path: Path, on_read: Callable[[int], object]) -> None:
        super().__init__(path)
        self._on_read = on_read

    def readinto(self, buffer: Any) -> int | None:
        """Read into ``buffer``."""
        size = super().readinto(buffer)
        self._on_read(size or 0)
        return size


def read_lines(path: Path, on_read: Callable[[int], object]) -> Iterator[bytes]:
    """The lines of a file, decompressed, with their line ends; ``on_read`` gets the bytes read.

    Raises:
        NotInstalledError: the file's codec needs a package that is not installed.
        ReplayError: the file cannot be opened, or its content is damaged or cut off.

    """
    damage: type[Exception] = OSError
    try:
        with io.BufferedReader(CountedFile(path, on_read), BUFFER_BYTES) as raw:
            lines, damage = decompressed(raw, path)
            yield from lines
    except EOFError:
        if not _is_being_written(path):
            raise ReplayError(f"{path}: cut off: events at its end may be missing") from None
    except (OSError, damage) as error:
        raise ReplayError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


# -- times ------------------------------------------------------------------------------------
# The time at which a line was written, if it contains one: Unix seconds.


# Only these keys hold the time of the event: others hold durations, or much older times.
_MILLIS = re.compile(
    rb'"(?:Timestamp|(?:Submission|Launch|Finish|Completion) Time|time)":\s?(\d{13})\b'
)


class _Timed(msgspec.Struct):
    timestamp: datetime | None = None


_TIMED = msgspec.json.Decoder(_Timed)


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


class Entry(NamedTuple):
    """A streaming event; or the name of an application that began; or None, when it stopped.

    ``at`` is when Spark posted it, in Unix seconds of the log's clock, None if unknown; ``text``
    is the JSON of an event.
    """

    at: float | None
    what: Event | str | None
    text: str | bytes = b""


_STREAMING = b"org.apache.spark.sql.streaming.StreamingQueryListener$Query%bEvent"
_KINDS = {
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
        times = [int(millis) / 1000 for millis in _MILLIS.findall(self._timed)]
        if times:
            self._newest = max(*times, self._newest or 0.0)
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
        if name in _KINDS:
            return self._received(_KINDS[name], line)
        if name == _START:
            # The times of earlier applications do not count.
            self._timed, self._newest = line, None
            return Entry(self.newest_time(), _APP_START.decode(line).name)
        if name == _END:
            self._timed = line
            return Entry(self.newest_time(), None)
        return None

    def _received(self, kind: EventKind, text: str | bytes) -> Entry:
        """An event; one without a time, such as a query's end, gets the newest time so far."""
        event = decode(kind, text)
        at = event.timestamp if isinstance(event, Progress) else timestamp(text)
        if at is None:
            return Entry(self.newest_time(), event, text)
        if isinstance(event, Progress):
            at += event.batch_seconds or 0.0
        self._newest = max(at, self._newest or at)
        return Entry(at, event, text)


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
