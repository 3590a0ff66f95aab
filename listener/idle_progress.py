"""What the triggers of a waiting run find: the proof of idleness, or of data that waits."""

from __future__ import annotations

from .decode import DecodeError, decode
from .events import EventKind, Progress
from .probing import ProbedRun


class IdleProgress:
    """Keeps one run's newest progress without a batch as it stands, and tells it while it waits.

    Spark writes such a progress every ``noDataProgressEventInterval`` (10 s) at most.
    """

    def __init__(self) -> None:
        self._known: Progress | None = None
        self._text = ""
        self._batch_id: int | None = None

    def poll(self, seen: ProbedRun, text: str) -> Progress | None:
        """None while the run is busy, and after a batch until a trigger without one is known.

        ``text`` is the newest progress as JSON; empty when it is as it was.
        """
        if seen.batch_id != self._batch_id:
            self._batch_id, self._known = seen.batch_id, None
        if text and text != self._text:
            self._text, self._known = text, _without_batch(text)
        waits = seen.message.startswith("Waiting for") and not seen.trigger_active
        return self._known if waits else None


def _without_batch(text: str) -> Progress | None:
    """Read a progress that is no event; one that cannot be read proves nothing."""
    try:
        event = decode(EventKind.PROGRESS, f'{{"progress":{text}}}')
    except DecodeError:
        return None
    return event if isinstance(event, Progress) and not event.committed else None
