"""A folder of small files, on a disk or in another store."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from .files import write_whole

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


class FileEntry(msgspec.Struct, frozen=True):
    """One file: its size in bytes, and when it last changed, in Unix seconds."""

    size: int
    changed_at: float


class Folder(Protocol):
    """A folder; each call may take long, or hang.

    Every method raises ``OSError`` where the store refuses; ``FileNotFoundError`` for a file, or
    where a store has folders, for a folder that is not there.
    """

    @property
    def place(self) -> str:
        """Where it is, for people."""
        ...

    @property
    def appends(self) -> bool:
        """Whether there is a cheap ``append``; else a file is only written as a whole."""
        ...

    def make(self) -> None:
        """Make the folder, for its owner only; one that is there stays as it is."""
        ...

    def entries(self) -> dict[str, FileEntry]:
        """The files in it, by name; none where it does not exist yet."""
        ...

    def read(self, name: str) -> bytes:
        """The content of a file."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write a file as a whole: readers see the old or the new content."""
        ...

    def append(self, name: str, content: bytes) -> None:
        """Add to the end of a file, which is there."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file; one that is not there is no error."""
        ...


def is_uri(place: str) -> bool:
    """Whether a folder is named by a URI, which only Hadoop opens; else it is a local path."""
    return _URI.match(place) is not None


class LocalFolder:
    """A folder on a disk; only the owner can read its files. It follows no link to a file."""

    appends = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self.place = str(path)

    def make(self) -> None:
        """Make the folder and those above it."""
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def entries(self) -> dict[str, FileEntry]:
        """The files in it, by name, also the drafts of ``write_whole``."""
        files: dict[str, FileEntry] = {}
        with suppress(FileNotFoundError), os.scandir(self._path) as entries:
            for entry in entries:
                # One that is deleted meanwhile is none.
                with suppress(FileNotFoundError):
                    stat = entry.stat(follow_symlinks=False)
                    if entry.is_file(follow_symlinks=False):
                        files[entry.name] = FileEntry(stat.st_size, stat.st_mtime)
        return files

    def read(self, name: str) -> bytes:
        """The content of a file."""
        with open(self._at(name), "rb", opener=_open) as file:
            return file.read()

    def write(self, name: str, content: bytes) -> None:
        """Write a file as a whole; it is on the disk when this returns."""
        write_whole(self._at(name), content, 0o600)

    def append(self, name: str, content: bytes) -> None:
        """Add to the end of a file, which the system writes to the disk when it likes."""
        with open(self._at(name), "ab", opener=_open) as file:
            file.write(content)

    def delete(self, name: str) -> None:
        """Delete a file; one that is not there is no error."""
        self._at(name).unlink(missing_ok=True)

    def _at(self, name: str) -> Path:
        if name in ("", ".", "..") or not {"/", "\\", "\0"}.isdisjoint(name):
            raise OSError(errno.EINVAL, "not the name of a file", name)
        return self._path / name


def _open(path: str, flags: int) -> int:
    """Open a file that is there; another user may have planted a link where many may write."""
    return os.open(path, flags & ~os.O_CREAT | _NO_FOLLOW)
