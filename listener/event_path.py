"""The interface of one event path, a way in which Spark's events reach us."""

from __future__ import annotations

from typing import Any, Protocol

from .event_channel import EventChannel
from .ownership import Ownership
from .received import EventSource


class NotListeningError(RuntimeError):
    """Spark accepted our listener but does not list it."""


class EventPath(EventChannel, Protocol):
    """One event path; the attaching thread calls ``listen``, the probe's thread the rest."""

    name: str
    shows_shutdown: bool
    """Whether ``terminated`` becomes true when a signal ends the JVM."""
    java_listener: Any
    """The object for PySpark's ``addListener``."""

    @property
    def source(self) -> EventSource:
        """Where the reader takes the events from."""
        ...

    @property
    def ownership(self) -> Ownership:
        """Which queries this process alerts for."""
        ...

    @property
    def terminated(self) -> bool:
        """Whether the JVM reported that a signal ends it; False where it cannot report it."""
        ...

    def listen(self, *, by_hand: bool) -> None:
        """Start; ``by_hand`` where PySpark adds ``java_listener`` itself.

        Raises:
            Py4JError: Spark refuses the listener.
            NotListeningError: Spark does not list the listener just added.

        """
        ...
