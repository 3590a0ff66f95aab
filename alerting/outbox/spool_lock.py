"""The lock of a spool: only one running process, and one spool of it, may write the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

HELD_BY_ANOTHER = frozenset({errno.EACCES, errno.EAGAIN})
"""The errors that POSIX allows ``fcntl`` if another process has the lock."""

_held: set[Path] = set()
"""The locks of this process: the system would grant one to the same process a second time."""


class SpoolLock:
    """A POSIX record lock on a side file; it is released when its process ends in any way.

    A forked child does not inherit it, so a child that outlives its driver blocks no process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take the lock if it is free.

        Raises:
            OSError: the side file cannot be made, or its file system has no locks.

        """
        # Not on Windows, where everything but the spool works.
        import fcntl

        if self._descriptor is not None:
            return True
        path = self._path.resolve()
        if path in _held:
            return False
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in HELD_BY_ANOTHER:
                return False
            raise OSError(error.errno, f"it cannot be locked: {error.strerror}") from None
        self._descriptor = descriptor
        _held.add(path)
        return True

    def give_back(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            _held.discard(self._path.resolve())
