"""Finds event logs: one file, or one folder of rolled files, is one application.

Names are those of Spark's ``EventLogFileWriters.scala``: a rolled log is a folder
``eventlog_v2_<application>[_<attempt>]`` with ``events_<number>_...`` files; the newest
``.compact`` file replaces all files before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from .compression import AFTER_THE_CODEC, codec_of
from .errors import ReplayError

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
    found: dict[str, Application] = {}
    for text in paths:
        here = {app.path: app for app in _applications(_local(text))}
        if not here:
            raise ReplayError(f"{text}: no event log in this folder")
        found |= here
    return list(found.values())


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
    name = path.name
    for suffix in AFTER_THE_CODEC:
        name = name.removesuffix(suffix)
    codec = codec_of(path)
    return name.removesuffix(f".{codec}") if codec else name
