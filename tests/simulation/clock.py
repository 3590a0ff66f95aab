"""Simulated time: actions that are due run in order, without waiting."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

BEGIN = 1000.0
"""The monotonic clock at the beginning."""
WALL = 1_700_000_000.0


class Time:
    """A clock with scheduled actions; ``jump`` is by how much the wall clock was set."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.jump = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def __call__(self) -> float:
        return self.now

    def wall(self) -> float:
        """Unix seconds on the machine of the driver."""
        return WALL + self.now + self.jump

    @property
    def passed(self) -> float:
        return self.now - BEGIN

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Run an action at ``when``; actions at the same time keep their order."""
        heappush(self._due, (max(when, self.now), next(self._numbers), action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now + seconds, action)

    def run(self, until: float) -> None:
        while self._due and self._due[0][0] <= until:
            self.now, _, action = heappop(self._due)
            action()
        self.now = until
