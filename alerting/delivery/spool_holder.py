"""Which process may write the spool: who has its lock on a disk, or its lease in another store."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec

from ...core.folders import Folder
from ...listener.state.snapshot import DriverAttempt

HELD_BY_ANOTHER = frozenset({errno.EACCES, errno.EAGAIN})
"""The errors that POSIX allows ``fcntl`` if another process has the lock."""
LEASE_SECONDS = 60.0
"""For so long after its last renewal, a lease is its holder's."""
RENEW_SECONDS = 20.0

_locked: set[Path] = set()
"""The locks of this process: the system would grant one to the same process a second time."""


class Lock:
    """A POSIX record lock on a side file, released when its process ends in any way.

    A forked child does not inherit it, so a child that outlives its driver blocks no process.
    """

    held = "in use by another process"
    renew_seconds = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Lock the side file if nobody else has.

        Raises:
            OSError: the side file cannot be made, or its file system has no locks.

        """
        if self._descriptor is not None:
            return True
        # Not on Windows, where everything but the spool works.
        import fcntl

        lock = self._path.resolve()
        if lock in _locked:
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
        _locked.add(lock)
        return True

    def keep(self) -> bool:
        """Whether it is still ours, which only its release ends."""
        return True

    is_ours = keep

    def release(self) -> None:
        """Release it, if it is ours."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            _locked.discard(self._path.resolve())


class Renewal(msgspec.Struct, frozen=True):
    """The content of a lease: a random name of the process, and its Unix time."""

    holder: str
    at: float
    attempt: DriverAttempt | None = None
    """What the process is to YARN, in cluster mode."""


class Lease:
    """A small file that its holder writes again while it runs, in a store without locks.

    A process that is killed leaves it, and the next one waits until it is 60 s old: by the clocks
    of both, or, where these differ, by its own, during which the file did not change. An attempt
    that YARN has started in the place of its holder takes it at once. No store has to compare
    before it writes: of two processes that take it at the same moment, the first to write finds the
    other's name, and lets go.
    """

    held = f"in use by another process, or one was killed less than {LEASE_SECONDS:.0f} s ago"
    renew_seconds = RENEW_SECONDS

    def __init__(
        self,
        folder: Folder,
        name: str,
        wall: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        attempt: DriverAttempt | None = None,
    ) -> None:
        self._folder = folder
        self._name = name
        self._attempt = attempt
        self._wall = wall
        self._clock = clock
        self._holder = uuid4().hex
        self._renewed_at: float | None = None
        """By the monotonic clock; None while it is not ours."""
        self._seen: Renewal | None = None
        """The newest renewal by another process."""
        self._seen_at = 0.0

    def take(self) -> bool:
        """Write our name if nobody else's lease lasts.

        Raises:
            OSError: the store refuses.

        """
        if self._renewed_at is not None:
            return self.keep()
        other = self._other()
        if other is not None and self._lasts(other) and not self._replaces(other):
            return False
        self._renew()
        return True

    def is_ours(self) -> bool:
        """Whether no other process has taken it; ask it before each write that it protects.

        Raises:
            OSError: the store refuses.

        """
        if self._renewed_at is not None and self._other() is not None:
            self._renewed_at = None
        return self._renewed_at is not None

    def keep(self) -> bool:
        """Renew it when that is due; False if another process has taken it.

        Raises:
            OSError: the store refuses.

        """
        if self._renewed_at is not None and self._clock() - self._renewed_at < RENEW_SECONDS:
            return True
        if not self.is_ours():
            return False
        self._renew()
        return True

    def release(self) -> None:
        """Delete it, if it is ours; where the store refuses, it runs out."""
        with suppress(OSError):
            if self.is_ours():
                self._folder.delete(self._name)
        self._renewed_at = None

    def _renew(self) -> None:
        renewal = Renewal(self._holder, self._wall(), self._attempt)
        self._folder.write(self._name, msgspec.json.encode(renewal))
        self._renewed_at = self._clock()

    def _other(self) -> Renewal | None:
        """The renewal of another process; none if nobody can have written what is there."""
        try:
            renewal = msgspec.json.decode(self._folder.read(self._name), type=Renewal)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return None if renewal.holder == self._holder else renewal

    def _replaces(self, other: Renewal) -> bool:
        return self._attempt is not None and self._attempt.replaces(other.attempt)

    def _lasts(self, other: Renewal) -> bool:
        now = self._clock()
        if other != self._seen:
            self._seen = other
            self._seen_at = now
        is_old = self._wall() - other.at > LEASE_SECONDS
        return not is_old and now - self._seen_at <= LEASE_SECONDS
