"""A lock that the writers of one table agree on, as jobs have that must not commit at once."""

from __future__ import annotations

import time
from pathlib import Path


class WriterLock:
    """A file: while it is there, somebody is writing."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def take(self) -> None:
        """Keep every other writer waiting."""
        self._path.touch()

    def give_back(self) -> None:
        """Let them go on."""
        self._path.unlink(missing_ok=True)

    def wait(self) -> None:
        """Return once nobody holds it."""
        while self._path.exists():
            time.sleep(0.1)
