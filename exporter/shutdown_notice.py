"""Notifies external watchers that this server shuts down, and why."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum

WAIT_SECONDS = 20.0
"""How long one request may wait; short enough for any proxy in between."""
MAX_WAITING = 4
"""How many requests may wait at once; half of the server's slots stay free for others. One
more ends the oldest, so that nobody keeps all places."""
MAX_PAGES = 2
"""How many of them may be status pages, of which a person can open any number."""
RETURN_SECONDS = 0.5
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
        self._waiting: deque[object] = deque()
        """Oldest first."""
        self._pages = 0
        self._came_late = 0
        self._released_at = self._displaced_at = -math.inf
        self._changed = threading.Condition()

    @property
    def said(self) -> Notice | None:
        """Why the server is shutting down; None while it runs."""
        return self._said

    def wait(self) -> Notice | None:
        """Wait up to ``WAIT_SECONDS`` for the notice; None if none was given.

        If ``MAX_WAITING`` requests wait already, the oldest of them returns at once.
        """
        with self._changed:
            if self._said:
                self._came_late += 1
                self._changed.notify_all()
            else:
                place = self._take_place()
                self._changed.wait_for(
                    lambda: self._said is not None or place not in self._waiting, WAIT_SECONDS
                )
                self._leave(place)
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
        seconds, and at most ``RETURN_SECONDS``. If its place was taken, others may come first, so
        all of this time passes.
        """
        with self._changed:
            waiting, self._said = len(self._waiting) + self._pages, notice
            self._changed.notify_all()
            since = self._clock() - max(self._released_at, self._displaced_at)
            displaced = self._clock() - self._displaced_at < RETURN_SECONDS
            self._changed.wait_for(
                lambda: self._came_late and not displaced,
                min(timeout, max(0.0, RETURN_SECONDS - since)),
            )
            return waiting + self._came_late > 0

    def _take_place(self) -> object:
        place = object()
        self._waiting.append(place)
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popleft()
            self._displaced_at = self._clock()
        self._changed.notify_all()
        return place

    def _leave(self, place: object) -> None:
        if place in self._waiting:
            self._waiting.remove(place)
        self._released_at = self._clock()

    def _places_left(self) -> int:
        return MAX_WAITING - len(self._waiting) - self._pages
