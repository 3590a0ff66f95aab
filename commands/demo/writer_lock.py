"""A lock that the writers of one table share, as in jobs that must not commit at once."""

from __future__ import annotations

import time
from pathlib import Path


class WriterLock:
    """A lock file: while it exists, somebody is writing."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def take(self) -> None:
        """Make every other writer wait."""
        self._path.touch()

    def give_back(self) -> None:
        """Release the lock."""
        self._path.unlink(missing_ok=True)

    def wait(self) -> None:
        """Wait until nobody holds it."""
        while self._path.exists():
            time.sleep(0.1)
