"""Records that outlive the process, by key: one kind of them, with what the disk holds. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class KeptRecords(Generic[T]):
    """What was found, what was offered last, and what the disk holds.

    Records that an earlier process left are not replaced before ``restore`` has released them, and
    what was offered until then is dropped: the next offer includes them.
    """

    def __init__(self) -> None:
        self._on_disk: dict[str, T] = {}
        self._left: dict[str, T] = {}
        self._newest: dict[str, T] | None = None

    def opened(self, found: Mapping[str, T]) -> None:
        """The disk holds exactly these."""
        self._on_disk = dict(found)

    def restore(self) -> None:
        """Release what the disk holds to ``take``."""
        self._left = dict(self._on_disk)
        self._newest = None if self._left else self._newest

    def take(self) -> tuple[T, ...]:
        """What an earlier process left; returned once."""
        left, self._left = self._left, {}
        return tuple(left.values())

    def offer(self, newest: Mapping[str, T]) -> bool:
        """Replace what the disk should hold; return whether it differs from the last offer."""
        if self._newest == newest:
            return False
        self._newest = dict(newest)
        return True

    @property
    def wanted(self) -> dict[str, T]:
        """What the disk should hold."""
        return self._on_disk if self._newest is None else self._newest

    def changes(self, wanted: Mapping[str, T]) -> dict[str, T | None]:
        """What to write until the disk holds ``wanted``; None deletes a record."""
        return {
            key: wanted.get(key)
            for key in {**self._on_disk, **wanted}
            if wanted.get(key) != self._on_disk.get(key)
        }
