"""Time that passes when a test says so."""

from __future__ import annotations


class Clock:
    """Called, it tells monotonic seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
