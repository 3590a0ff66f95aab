"""A folder of small files, on a disk or in another store."""

from __future__ import annotations

from typing import Protocol

import msgspec


class FileEntry(msgspec.Struct, frozen=True):
    """One file: its size in bytes, and when it last changed, in Unix seconds."""

    size: int
    changed_at: float


class Folder(Protocol):
    """A folder, which is made when something is first written; each call may take long, or hang.

    Every method raises ``OSError`` where the store refuses; ``FileNotFoundError`` for a file, or
    for the listing of a folder, that is not there.
    """

    @property
    def place(self) -> str:
        """Where it is, for people."""
        ...

    @property
    def appends(self) -> bool:
        """Whether ``append`` is cheap; else a file is only written as a whole."""
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
        """Add to the end of a file, which is made if it is not there."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file; one that is not there is no error."""
        ...
