"""Log files: found, decompressed, and read line by line."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import msgspec

from ..core.installed import NotInstalledError


class ReplayError(Exception):
    """An input cannot be read or an output cannot be written; the message says which."""


# -- compression ------------------------------------------------------------------------------
# Opens a log for reading, decompressed by the codec in its name.
#
# Spark names the codec in the extension (``EventLogFileWriter.codecName``); ``.zst`` and ``.gz``
# are for recordings that users compress themselves.


READABLE = ("zstd", "zst", "gz")
ONLY_SPARK_READS = ("lz4", "snappy", "lzf")
"""Codecs whose streams have a format of their own in Java."""
AFTER_THE_CODEC = (".inprogress", ".compact")
UNPACKED_BYTES = 256 * 1024
"""The size of one decompressed piece: Python's usual 8 KB takes twice as long."""


def decompressed(raw: BinaryIO, path: Path) -> tuple[BinaryIO, type[Exception]]:
    """The content of ``raw``, the opened file ``path``, and its codec's error for damaged data.

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
        return io.BufferedReader(gzip.GzipFile(fileobj=raw), UNPACKED_BYTES), zlib.error
    try:
        import zstandard
    except ModuleNotFoundError as error:
        raise NotInstalledError(
            f"reading {path} needs the package {error.name}: pip install {error.name}"
        ) from None
    reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
    return io.BufferedReader(reader, UNPACKED_BYTES), zstandard.ZstdError


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
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise ReplayError(f"{folder}: {error.strerror}") from None
    shown = [path for path in paths if not path.name.startswith(_HIDDEN)]
    return [path for path in shown if not (path.is_symlink() and path.is_dir())]


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


def _label(path: Path) -> str:
    """A file's name without the suffixes for state and codec."""
    return _without_state(path).removesuffix(f".{codec_of(path)}")


# -- lines ------------------------------------------------------------------------------------
# A log file, line by line, in constant memory.


BUFFER_BYTES = 1024 * 1024


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, decompressed, with their line ends.

    Raises:
        NotInstalledError: the file's codec needs a package that is not installed.
        ReplayError: the file cannot be opened, or its content is damaged.

    """
    damage: type[Exception] = OSError
    try:
        with path.open("rb", BUFFER_BYTES) as raw:
            lines, damage = decompressed(raw, path)
            yield from lines
    except EOFError:
        # gzip raises this for a truncated file, such as one whose writer was killed.
        return
    except (OSError, damage) as error:
        raise ReplayError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
