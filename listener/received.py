"""Events between Spark and the reader, and the queue that the reader takes them from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from .events import EventKind


class Received(NamedTuple):
    """One event as it arrived, as JSON text or as a JVM handle with ``json()``.

    ``at`` is the monotonic time of its arrival in seconds. ``session`` and ``trigger`` of a
    started run are empty if the run could not be queried in time.
    """

    kind: EventKind
    payload: Any
    at: float
    session: str = ""
    trigger: str = ""


class EventSource(Protocol):
    """A bounded queue of received events, drained by one thread."""

    @property
    def depth(self) -> int:
        """Events in the queue."""
        ...

    @property
    def drops(self) -> Mapping[str, int]:
        """Events lost since the start, by reason."""
        ...

    def take(self, timeout: float) -> list[Received]:
        """All queued events, oldest first; waits up to ``timeout`` seconds for the first one.

        Raises:
            Py4JError: the JVM that holds the queue does not answer.

        """
        ...

    def wake(self) -> None:
        """Make a waiting ``take`` return at once."""
        ...
