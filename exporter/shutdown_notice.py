"""Notifies external watchers that this server shuts down, and why."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from enum import Enum

WAIT_SECONDS = 20.0
"""How long one request may wait; short enough for any proxy in between."""
MAX_WAITING = 4
"""How many requests may wait at once; half of the server's slots stay free for others."""
MAX_PAGES = 2
"""How many of them may be status pages, of which a person can open any number."""
RETURN_SECONDS = 0.3
"""A watcher whose request has ended asks again within this time."""


class Notice(str, Enum):
    """Why a server shuts down; a crash gives no notice."""

    STOPPED = "stopped"
    """The application ends as intended; no restart is expected."""
    TERMINATED = "terminated"
    """A signal ends it; a scheduler may start it again."""


class ShutdownNotice:
    """``say`` gives the notice once; every current and later ``wait`` returns it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: Notice | None = None
        self._waiting = 0
        self._pages = 0
        self._came_late = 0
        self._released_at = -math.inf
        self._changed = threading.Condition()

    @property
    def said(self) -> Notice | None:
        """Why the server is shutting down; None while it runs."""
        return self._said

    def wait(self) -> Notice | None:
        """Wait up to ``WAIT_SECONDS`` for the notice; None if none was given.

        If ``MAX_WAITING`` requests wait already, returns at once.
        """
        with self._changed:
            if self._said:
                self._came_late += 1
                self._changed.notify_all()
            elif self._waiting < MAX_WAITING:
                self._waiting += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._said is not None, WAIT_SECONDS)
                self._waiting -= 1
                self._released_at = self._clock()
            return self._said

    def wait_as_page(self) -> Notice | None:
        """Wait like ``wait``, but only on a free place; a new watcher takes that place."""
        with self._changed:
            if not self._said and self._pages < MAX_PAGES and self._places_left() > 0:
                self._pages += 1
                self._changed.wait_for(
                    lambda: self._said is not None or self._places_left() < 0, WAIT_SECONDS
                )
                self._pages -= 1
            return self._said

    def say(self, notice: Notice, timeout: float) -> bool:
        """Give the notice; True if a client receives it.

        A watcher whose request just ended is about to ask again. Waits for it up to ``timeout``
        seconds, and at most ``RETURN_SECONDS``.
        """
        with self._changed:
            waiting, self._said = self._waiting + self._pages, notice
            self._changed.notify_all()
            left = self._released_at + RETURN_SECONDS - self._clock()
            self._changed.wait_for(lambda: self._came_late, min(timeout, max(0.0, left)))
            return waiting + self._came_late > 0

    def _places_left(self) -> int:
        return MAX_WAITING - self._waiting - self._pages
