"""One way by which Spark's events reach us, as everything else sees it."""

from __future__ import annotations

from typing import Any, Protocol

from .event_channel import EventChannel
from .ownership import Ownership
from .received import EventSource


class NotListeningError(RuntimeError):
    """Spark accepted our listener and does not know it."""


class EventPath(EventChannel, Protocol):
    """One way; ``listen`` belongs to the thread that attaches, the rest to the probe's."""

    name: str
    java_listener: Any
    """What PySpark's ``addListener`` is given."""

    @property
    def source(self) -> EventSource:
        """Where the reader takes the events from."""
        ...

    @property
    def ownership(self) -> Ownership:
        """Which queries this process answers for."""
        ...

    @property
    def terminated(self) -> bool:
        """Whether the JVM has said that a signal ends it; False where it cannot."""
        ...

    def listen(self, *, by_hand: bool) -> None:
        """Begin; ``by_hand`` where PySpark adds ``java_listener`` itself.

        Raises:
            Py4JError: Spark refuses it.
            NotListeningError: Spark does not know the listener just added.

        """
        ...
