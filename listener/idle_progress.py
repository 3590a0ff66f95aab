"""What a waiting run's triggers find: proof that it is idle, or that data is unread."""

from __future__ import annotations

from .decode import DecodeError, decode
from .events import EventKind, Progress
from .probing import ProbedRun


class IdleProgress:
    """Keeps one run's newest progress without a batch, and returns it while the run waits.

    Spark writes such a progress at most every ``noDataProgressEventInterval`` (10 s).
    """

    def __init__(self) -> None:
        self._known: Progress | None = None
        self._text = ""
        self._batch_id: int | None = None

    def poll(self, seen: ProbedRun, text: str) -> Progress | None:
        """None while the run is busy, and after a batch until a trigger without a batch.

        ``text`` is the newest progress as JSON; empty when it has not changed.
        """
        if seen.batch_id != self._batch_id:
            self._batch_id, self._known = seen.batch_id, None
        if text and text != self._text:
            self._text, self._known = text, _without_batch(text)
        waits = seen.message.startswith("Waiting for") and not seen.trigger_active
        return self._known if waits else None


def _without_batch(text: str) -> Progress | None:
    """Decode a progress that Spark sent no event for; an unreadable one proves nothing."""
    try:
        event = decode(EventKind.PROGRESS, f'{{"progress":{text}}}')
    except DecodeError:
        return None
    return event if isinstance(event, Progress) and not event.committed else None
