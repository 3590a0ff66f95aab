"""The rows of one receiver, as many as there is room for. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from .row import Row, Told

MAX_ROWS = 1000
MAX_BYTES = 8 * 1024 * 1024


class Shelf:
    """Rows by key, at most ``max_rows`` of them and ``max_bytes`` as JSON.

    When it is full, what is told and resolved is forgotten first, then the least severe and
    oldest; an untold critical one never goes for a lesser one, nor for a newer one.
    ``evicted`` counts what there was no room for, once each. What still fires is offered
    again and comes back when there is room. A single row may be larger than everything.
    """

    def __init__(self, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES) -> None:
        self.evicted = 0
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._rows: dict[str, Row] = {}
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._outside: set[str] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(tuple(self._rows.values()))

    def get(self, key: str) -> Row | None:
        """The row of that key, None if there is none."""
        return self._rows.get(key)

    def put(self, row: Row, *, keep: str | None = None) -> None:
        """Add or replace a row and make room; the row of key ``keep`` stays whatever happens."""
        key = row.incident.key
        before = self._rows.get(key)
        if before is None or before.incident is not row.incident:
            self._bytes -= self._sizes.get(key, 0)
            self._sizes[key] = len(msgspec.json.encode(row))
            self._bytes += self._sizes[key]
        self._rows[key] = row
        while self._is_full() and self._evict_one(keep):
            pass
        if key in self._rows:
            self._outside.discard(key)

    def drop(self, key: str) -> None:
        """Forget a row."""
        if self._rows.pop(key, None) is not None:
            self._bytes -= self._sizes.pop(key)

    def forget_outsiders(self, wanted: Collection[str]) -> None:
        """Of what found no room, remember only the keys ``wanted`` still."""
        self._outside.intersection_update(wanted)

    def _is_full(self) -> bool:
        return len(self._rows) > self._max_rows or self._bytes > self._max_bytes

    def _evict_one(self, keep: str | None) -> bool:
        candidates = [key for key in self._rows if key != keep]
        if len(self._rows) <= 1 or not candidates:
            return False
        key = min(candidates, key=self._worth)
        row = self._rows[key]
        self.drop(key)
        if not _is_done(row):
            self.evicted += key not in self._outside
            self._outside.add(key)
        return True

    def _worth(self, key: str) -> tuple[int, bool, float]:
        """The smallest goes first; what was outside before goes before what was not.

        Else a set that is one too large would push each other out for ever.
        """
        row = self._rows[key]
        if _is_done(row):
            return 0, False, row.queued_at
        if row.is_critical and row.is_untold:
            return 3, key not in self._outside, -row.queued_at
        return 2 if row.is_critical else 1, key not in self._outside, row.queued_at


def _is_done(row: Row) -> bool:
    """Whether there is nothing left to tell."""
    return row.is_over and (row.told is Told.RESOLVED or row.dead)
