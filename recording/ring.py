"""The newest events of Spark, as they arrived: what came before an incident."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

RING_BYTES = 8 * 1024 * 1024
KEPT_SHARE = 0.9
"""Of the bound: what is left after events were dropped."""
ENTRY_BYTES = 400
"""What Python adds to the text of one event."""
QUERY_BYTES = 1000
"""What it needs for one query."""
LONGEST_EVENT = 64 * 1024
"""Characters of one event; of a longer one, its longest members are left out."""
PROGRESS = "progress"


class Received(msgspec.Struct, frozen=True, gc=False):
    """One event: ``at`` is in monotonic seconds, ``number`` counts all events."""

    number: int
    at: float
    query_id: str
    event: str
    text: str
    left_out: tuple[str, ...] = ()


class Ring:
    """Holds at most ``RING_BYTES`` for all queries; any thread may add and read.

    Where it is full, the queries that use most lose their oldest events: one with many events does
    not take away those of another with few.
    """

    def __init__(self, most_bytes: int = RING_BYTES) -> None:
        self._most_bytes = most_bytes
        self._used = 0
        self._number = 0
        self._queries: dict[str, deque[Received]] = {}
        self._sizes: dict[str, int] = {}
        self._changed = threading.Lock()

    def add(self, query_id: str, event: str, text: str, at: float) -> None:
        """Keep an event, the JSON ``text`` of which arrived at ``at``."""
        left_out: tuple[str, ...] = ()
        if len(text) > LONGEST_EVENT:
            text, left_out = shortened(text)
        size = _size(text)
        with self._changed:
            self._number += 1
            events = self._queries.get(query_id)
            if events is None:
                events = self._queries[query_id] = deque()
                self._count(query_id, QUERY_BYTES)
            events.append(Received(self._number, at, query_id, event, text, left_out))
            self._count(query_id, size)
            if self._used > self._most_bytes:
                self._make_room()

    @property
    def newest(self) -> int:
        """The number of the newest event."""
        return self._number

    def since(self, number: int, query_ids: frozenset[str]) -> list[Received]:
        """The events of these queries after that of ``number``, in order."""
        with self._changed:
            held = [event for query_id in query_ids for event in self._after(number, query_id)]
        return sorted(held, key=lambda event: event.number)

    def _after(self, number: int, query_id: str) -> Iterator[Received]:
        for event in reversed(self._queries.get(query_id, ())):
            if event.number <= number:
                return
            yield event

    def _make_room(self) -> None:
        """Drop the oldest events of the queries that use most, rarely and many at once."""
        room = self._most_bytes * KEPT_SHARE
        level = _level(sorted(self._sizes.values()), room)
        largest = [query_id for query_id, size in self._sizes.items() if size > level]
        # Where each has few, those go first that have been quiet for longest.
        for query_id in sorted(largest, key=lambda query_id: self._queries[query_id][-1].number):
            if self._used <= room:
                break
            events = self._queries[query_id]
            while events and self._sizes[query_id] > level:
                self._count(query_id, -_size(events.popleft().text))
            if not events:
                del self._queries[query_id]
                self._used -= self._sizes.pop(query_id)

    def _count(self, query_id: str, size: int) -> None:
        self._used += size
        self._sizes[query_id] = self._sizes.get(query_id, 0) + size


def shortened(text: str) -> tuple[str, tuple[str, ...]]:
    """An event without its longest members, and their names; ``*`` where it has none.

    Spark's ``QueryProgressEvent`` has only one, ``progress``, whose members count.
    """
    try:
        members = _members(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return "{}", ("*",)
    if members.keys() == {PROGRESS}:
        inner, left_out = _shortened(_members(members[PROGRESS]), len(text))
        return msgspec.json.encode({PROGRESS: inner}).decode(), left_out
    kept, left_out = _shortened(members, len(text))
    return msgspec.json.encode(kept).decode(), left_out


def _members(text: str | msgspec.Raw) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(text, type=dict[str, msgspec.Raw])


def _shortened(
    members: dict[str, msgspec.Raw], length: int
) -> tuple[dict[str, msgspec.Raw], tuple[str, ...]]:
    longest = sorted(members, key=lambda name: len(bytes(members[name])), reverse=True)
    left_out = []
    for name in longest:
        if length <= LONGEST_EVENT:
            break
        length -= len(bytes(members[name]))
        left_out.append(name)
    return {name: members[name] for name in members if name not in left_out}, tuple(left_out)


def _level(sizes: Sequence[int], room: float) -> float:
    """The most that each query may use, so that all of them fit; ``sizes`` ascend."""
    left = len(sizes)
    for size in sizes:
        if size * left > room:
            break
        room -= size
        left -= 1
    return room / max(1, left)


def _size(text: str) -> int:
    """Bytes of one event: a character needs one if all are ASCII, else up to four (PEP 393)."""
    return len(text) * (1 if text.isascii() else 4) + ENTRY_BYTES
