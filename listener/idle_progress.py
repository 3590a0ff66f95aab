"""What the triggers of a waiting run find: the proof of idleness, or of data that waits."""

from __future__ import annotations

from collections.abc import Callable

from .events import Progress
from .probing import ProbedRun

READ_EVERY_SECONDS = 2.0


class IdleProgress:
    """Reads one run's newest progress without a batch while it waits, and keeps it as it stands.

    Spark writes such a progress every ``noDataProgressEventInterval`` (10 s) at most, so there
    is no point in asking at every look.
    """

    def __init__(self, read: Callable[[], Progress | None]) -> None:
        self._read = read
        self._known: Progress | None = None
        self._read_at: float | None = None
        self._batch_id: int | None = None

    def look(self, seen: ProbedRun, now: float) -> Progress | None:
        """None while the run is busy, and after a batch until a trigger without one is known."""
        if seen.batch_id != self._batch_id:
            self._batch_id = seen.batch_id
            self._known = self._read_at = None
        if seen.trigger_active or not seen.message.startswith("Waiting for"):
            return None
        if self._read_at is None or now - self._read_at >= READ_EVERY_SECONDS:
            self._read_at = now
            self._known = self._read()
        return self._known
