"""One time budget for several waits."""

from __future__ import annotations

import time


class Deadline:
    """Ends ``seconds`` from now."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._ends_at - time.monotonic())
