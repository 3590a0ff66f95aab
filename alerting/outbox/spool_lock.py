"""Who may write a spool: one live process, and one spool of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

HELD_BY_ANOTHER = frozenset({errno.EACCES, errno.EAGAIN})
"""What POSIX lets ``fcntl`` answer where another process has the lock."""

_held: set[Path] = set()
"""What this process has locked: the system's lock would let it in a second time."""


class SpoolLock:
    """A POSIX record lock on a side file; it ends with its process, however that ends.

    A forked child does not have it, so a child that outlives its driver keeps nobody out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take the lock, if nobody else has it.

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
        """Let others have it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            _held.discard(self._path.resolve())
