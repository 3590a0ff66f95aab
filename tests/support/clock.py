"""A clock that only the test advances."""

from __future__ import annotations


class Clock:
    """A callable that returns monotonic seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
