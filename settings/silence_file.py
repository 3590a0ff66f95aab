"""The file that ``querypulse silence`` writes and sidecars read: one JSON object per line.

It is replaced as a whole, so that no reader sees half a line. Writers lock its folder, so that
concurrent writers lose nothing.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from ..core.whole_file import write_whole
from .silence_settings import SilenceSettings

FILE_MODE = 0o644
"""The driver may run as another user, and a silence is not a secret."""

Silences = tuple[SilenceSettings, ...]


def read_silences(path: Path) -> Silences:
    """All silences in the file, including ended ones; none if there is no file.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is not a silence, or names no app; the message names file and line.

    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    return tuple(_parse(path, i, line) for i, line in enumerate(lines, 1) if line.strip())


def add_silence(path: Path, silence: SilenceSettings, now: datetime) -> None:
    """Add a silence, and remove those that ended before ``now``.

    Raises:
        OSError: the file cannot be written.
        ValueError: one of its lines is not a silence.

    """
    _change(path, lambda known: (*in_force(known, now), silence))


def end_silences(path: Path, queries: str, now: datetime, app: str | None = None) -> Silences:
    """End the silences of exactly this pattern, and of ``app`` if given; return them.

    Raises:
        OSError: the file cannot be written.
        ValueError: one of its lines is not a silence.

    """
    ended: list[SilenceSettings] = []

    def without(known: Silences) -> Silences:
        active = in_force(known, now)
        matching = [one for one in active if one.queries == queries and app in (None, one.app)]
        ended.extend(matching)
        return tuple(one for one in active if one not in matching)

    _change(path, without)
    return tuple(ended)


def in_force(silences: Iterable[SilenceSettings], now: datetime) -> Silences:
    """The silences that have not ended at ``now``."""
    return tuple(one for one in silences if one.until > now)


def _parse(path: Path, number: int, line: bytes) -> SilenceSettings:
    try:
        silence = msgspec.json.decode(line, type=SilenceSettings)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}, line {number}: {error}") from None
    if not silence.app:
        raise ValueError(
            f"{path}, line {number}: the silence of {silence.queries!r} names no app; drivers of "
            'several apps may read this file: add "app": "NAME", or "*" for all apps'
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
