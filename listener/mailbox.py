"""The bounded hand-off from threads that must not wait to the one thread that works."""

from __future__ import annotations

from collections import deque
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Two lanes: births and deaths are never dropped, progress is bounded.

    ``put`` takes no lock and never waits, so Spark's own threads may call it. Progress does
    not wake the taker, who comes soon enough by itself: awake, it would compete for the GIL
    with the very callback that has to answer Spark (a third of its cost, see docs/benchmarks.md).
    """

    def __init__(self, progress_capacity: int) -> None:
        self.progress_capacity = progress_capacity
        self.dropped = 0
        self._lifecycle: deque[T] = deque()
        self._progress: deque[T] = deque()
        self._wake: SimpleQueue[None] = SimpleQueue()

    def put(self, item: T, *, lifecycle: bool) -> bool:
        """Hand over one item; False when the progress lane is full and it was dropped."""
        if lifecycle:
            self._lifecycle.append(item)
            self._wake.put(None)
        elif len(self._progress) < self.progress_capacity:
            self._progress.append(item)
        else:
            self.dropped += 1
            return False
        return True

    def wake(self) -> None:
        """Let a waiting ``take`` return at once."""
        self._wake.put(None)

    def take(self, timeout: float) -> list[T]:
        """All items waiting, births and deaths first; waits up to ``timeout`` seconds for these."""
        try:
            self._wake.get(timeout=timeout)
            while True:
                self._wake.get_nowait()
        except Empty:
            pass
        return _drain(self._lifecycle) + _drain(self._progress)

    @property
    def depth(self) -> int:
        """Items waiting now, in both lanes."""
        return len(self._lifecycle) + len(self._progress)


def _drain(lane: deque[T]) -> list[T]:
    # Only what is there now: a producer as fast as the consumer must not hold it here.
    return [lane.popleft() for _ in range(len(lane))]
