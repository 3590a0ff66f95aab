"""Tries whether a folder can hold a spool, and removes everything that the trial made."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .spool_lock import SpoolLock


def try_folder(folder: Path) -> None:
    """Do in ``folder`` what a spool does: make it, lock a file there, write and sync.

    Raises:
        OSError: one of these failed.

    """
    with _present(folder):
        path = folder / f"check-{os.getpid()}.lock"
        lock = SpoolLock(path)
        try:
            lock.take()
            _write(path)
        finally:
            lock.give_back()
            path.unlink(missing_ok=True)


@contextmanager
def _present(folder: Path) -> Iterator[None]:
    """The folder; directories that the trial made are removed: the driver may be another user."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    made: list[Path] = []
    try:
        for path in reversed(missing):
            path.mkdir(mode=0o700)
            made.insert(0, path)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "it is a file, not a folder", str(folder))
        yield
    finally:
        for path in made:
            path.rmdir()


def _write(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"querypulse")
        file.flush()
        os.fsync(file.fileno())
