"""The file by which ``querypulse silence`` speaks to running sidecars: one JSON object a line.

It is replaced as a whole, so a reader never meets half a line, under a lock of its folder,
so that of two who write neither loses what the other wrote.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from .configuration.receiver_settings import SilenceSettings
from .whole_file import write_whole

FILE_MODE = 0o644
"""Whoever runs the driver may be another user; a silence is no secret."""

Silences = tuple[SilenceSettings, ...]


def read_silences(path: Path) -> Silences:
    """All silences of the file, those that have ended included; none where there is no file.

    Raises:
        OSError: it cannot be read.
        ValueError: a line is no silence, or names no app; the message names file and line.

    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    return tuple(_parse(path, i, line) for i, line in enumerate(lines, 1) if line.strip())


def add_silence(path: Path, silence: SilenceSettings, now: datetime) -> None:
    """Add one; those that ended before ``now`` leave the file.

    Raises:
        OSError: the file cannot be written.
        ValueError: a line of it is no silence.

    """
    _change(path, lambda known: (*in_force(known, now), silence))


def end_silences(path: Path, queries: str, now: datetime, app: str | None = None) -> Silences:
    """End those that were made for this very pattern, and for ``app`` if given; return them.

    Raises:
        OSError: the file cannot be written.
        ValueError: a line of it is no silence.

    """
    ended: list[SilenceSettings] = []

    def without(known: Silences) -> Silences:
        alive = in_force(known, now)
        meant = [one for one in alive if one.queries == queries and app in (None, one.app)]
        ended.extend(meant)
        return tuple(one for one in alive if one not in meant)

    _change(path, without)
    return tuple(ended)


def in_force(silences: Iterable[SilenceSettings], now: datetime) -> Silences:
    """Those that have not ended at ``now``."""
    return tuple(one for one in silences if one.until > now)


def _parse(path: Path, number: int, line: bytes) -> SilenceSettings:
    try:
        silence = msgspec.json.decode(line, type=SilenceSettings)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}, line {number}: {error}") from None
    if not silence.app:
        raise ValueError(
            f"{path}, line {number}: the silence of {silence.queries!r} names no app; drivers of "
            'several apps may read this file: add "app": "NAME", or "*" for all of them'
        )
    return silence


def _change(path: Path, change: Callable[[Silences], Silences]) -> None:
    path = path.resolve()
    with _locked(path.parent):
        silences = change(read_silences(path))
        write_whole(path, b"".join(msgspec.json.encode(one) + b"\n" for one in silences), FILE_MODE)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
