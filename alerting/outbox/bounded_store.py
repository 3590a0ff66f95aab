"""The entries of one receiver, limited in number and size. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from .entry import DeliveryState, OutboxEntry

MAX_ENTRIES = 1000
MAX_BYTES = 8 * 1024 * 1024


class BoundedStore:
    """Entries by key, at most ``max_entries`` of them and ``max_bytes`` as JSON.

    A full store evicts delivered and resolved entries first, then the least severe and oldest. It
    never evicts an unsent critical entry that fires for a less severe, a newer or a rejected one.
    An unsent one that is over gives way: a fallback gets no alert that has no room here.
    ``evicted`` counts the evicted entries, once each. A firing incident is offered again and comes
    back when there is room. A single entry may be larger than ``max_bytes``.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES) -> None:
        self.evicted = 0
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: dict[str, OutboxEntry] = {}
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._outside: set[str] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[OutboxEntry]:
        return iter(tuple(self._entries.values()))

    def get(self, key: str) -> OutboxEntry | None:
        """The entry with this key, or None."""
        return self._entries.get(key)

    def put(self, entry: OutboxEntry, *, keep: str | None = None) -> None:
        """Add or replace an entry and make room; the entry with the key ``keep`` always stays."""
        key = entry.incident.key
        before = self._entries.get(key)
        if before is None or before.incident is not entry.incident:
            self._bytes -= self._sizes.get(key, 0)
            self._sizes[key] = len(msgspec.json.encode(entry))
            self._bytes += self._sizes[key]
        self._entries[key] = entry
        while self._is_full() and self._evict_one(keep):
            pass
        if key in self._entries:
            self._outside.discard(key)

    def drop(self, key: str) -> None:
        """Remove an entry."""
        if self._entries.pop(key, None) is not None:
            self._bytes -= self._sizes.pop(key)

    def forget_outsiders(self, wanted: Collection[str]) -> None:
        """Forget all evicted keys except those in ``wanted``."""
        self._outside.intersection_update(wanted)

    def _is_full(self) -> bool:
        return len(self._entries) > self._max_entries or self._bytes > self._max_bytes

    def _evict_one(self, keep: str | None) -> bool:
        candidates = [key for key in self._entries if key != keep]
        if len(self._entries) <= 1 or not candidates:
            return False
        key = min(candidates, key=self._worth)
        entry = self._entries[key]
        self.drop(key)
        if not _is_done(entry):
            self.evicted += key not in self._outside
            self._outside.add(key)
        return True

    def _worth(self, key: str) -> tuple[int, bool, float]:
        """Sort key: the smallest is evicted first, an entry that was evicted before others.

        Otherwise the entries of a set that is one too large would evict each other for ever.
        """
        entry = self._entries[key]
        if _is_done(entry):
            return 0, False, entry.queued_at
        if not entry.is_critical:
            return 1, key not in self._outside, entry.queued_at
        if entry.is_unsent and entry.is_over:
            return 2, key not in self._outside, entry.queued_at
        if entry.is_unsent and not entry.dead:
            return 4, key not in self._outside, -entry.queued_at
        return 3, key not in self._outside, entry.queued_at


def _is_done(entry: OutboxEntry) -> bool:
    """Whether there is nothing left to send."""
    return entry.is_over and (entry.state is DeliveryState.RESOLVED or entry.dead)
