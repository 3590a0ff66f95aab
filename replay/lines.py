"""A log file, line by line, in constant memory."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .compression import decompressed
from .errors import ReplayError

BUFFER_BYTES = 1024 * 1024
MAX_LINE_BYTES = 256 * 1024 * 1024
KEPT_BYTES = 1000


def read_lines(path: Path, on_read: Callable[[int], object]) -> Iterator[bytes]:
    """The lines of a file, decompressed, with their line ends.

    A line longer than ``MAX_LINE_BYTES`` is cut to its first ``KEPT_BYTES``. ``on_read`` receives
    the number of bytes of each read.

    Raises:
        NotInstalledError: the file's codec needs a package that is not installed.
        ReplayError: the file cannot be opened, or its content is damaged.

    """
    damage: tuple[type[Exception], ...] = (OSError,)
    try:
        with io.BufferedReader(_CountingFile(path, on_read), BUFFER_BYTES) as raw:
            stream = decompressed(raw, path)
            damage += stream.damage
            file = stream.file
            while line := file.readline(MAX_LINE_BYTES):
                yield line if len(line) < MAX_LINE_BYTES else _cut(line, file)
    except EOFError:
        # gzip raises this for a truncated file, such as one whose writer was killed.
        return
    except damage as error:
        raise ReplayError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _cut(line: bytes, file: BinaryIO) -> bytes:
    """The beginning of a line that is too long; the rest is skipped."""
    kept = line[:KEPT_BYTES]
    while line and not line.endswith(b"\n"):
        line = file.readline(MAX_LINE_BYTES)
    return kept + b"\n"


class _CountingFile(io.FileIO):
    """Reports the size of every read."""

    def __init__(self, path: Path, on_read: Callable[[int], object]) -> None:
        super().__init__(path)
        self._on_read = on_read

    def readinto(self, buffer: Any) -> int | None:
        """Read, and report the number of bytes."""
        size = super().readinto(buffer)
        self._on_read(size or 0)
        return size
