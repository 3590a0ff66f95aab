"""Shows the progress of a long replay on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

from .applications import Application

LONG_BYTES = 64 * 1024 * 1024
EVERY_SECONDS = 0.2
MEGABYTE = 1024 * 1024


class ProgressBar:
    """Counts the bytes read; silent for short inputs, and if standard error is no terminal."""

    def __init__(self, applications: Iterable[Application]) -> None:
        files = {file for application in applications for file in application.files}
        self._total = sum(_size(Path(file)) for file in files)
        self._shown = self._total >= LONG_BYTES and sys.stderr.isatty()
        self._read = 0
        self._due = 0.0

    def add(self, size: int) -> None:
        """Add the bytes of one read."""
        self._read += size
        if self._shown and time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY_SECONDS
            percent = 100 * self._read / self._total
            self._write(
                f"{percent:3.0f}%  {self._read // MEGABYTE} of {self._total // MEGABYTE} MB"
            )

    def clear(self) -> None:
        """Clear the line for other output."""
        if self._shown:
            self._due = 0.0
            self._write("")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        # Reading the file reports the error.
        return 0
