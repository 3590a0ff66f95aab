"""Letting those who watch from outside know that this server closes, and how."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from enum import Enum

WAIT_SECONDS = 20.0
"""How long one question may wait; short enough for any proxy on the way."""
MAX_WAITING = 4
"""How many may wait at once: half of the server's places stay free for other requests."""
MAX_PAGES = 2
"""How many of them may be status pages, which a person can open any number of."""
RETURN_SECONDS = 0.3
"""Within this time somebody who was told that all goes on asks again."""


class Notice(str, Enum):
    """Why a server closes; one that crashed gives no notice."""

    STOPPED = "stopped"
    """The application ends in good order: nobody waits for it."""
    TERMINATED = "terminated"
    """A signal ends it: a scheduler may start it again."""


class ShutdownNotice:
    """Said once, by ``say``; heard by everybody who is in ``wait`` then, or comes later."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: Notice | None = None
        self._waiting = 0
        self._pages = 0
        self._came_late = 0
        self._let_go_at = -math.inf
        self._changed = threading.Condition()

    @property
    def said(self) -> Notice | None:
        """Why the server is closing; None while it is not."""
        return self._said

    def wait(self) -> Notice | None:
        """Wait up to ``WAIT_SECONDS`` for the notice; None where none was given.

        Where ``MAX_WAITING`` wait already, the answer comes at once.
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
                self._let_go_at = self._clock()
            return self._said

    def wait_as_page(self) -> Notice | None:
        """Wait like ``wait``, on a place that nobody else wants: a watcher who comes takes it."""
        with self._changed:
            if not self._said and self._pages < MAX_PAGES and self._places_left() > 0:
                self._pages += 1
                self._changed.wait_for(
                    lambda: self._said is not None or self._places_left() < 0, WAIT_SECONDS
                )
                self._pages -= 1
            return self._said

    def say(self, notice: Notice, timeout: float) -> bool:
        """Give notice; True when somebody receives it.

        One who was let go a moment ago is about to ask again: up to ``timeout`` seconds, and
        ``RETURN_SECONDS`` at most, are given to that.
        """
        with self._changed:
            waiting, self._said = self._waiting + self._pages, notice
            self._changed.notify_all()
            left = self._let_go_at + RETURN_SECONDS - self._clock()
            self._changed.wait_for(lambda: self._came_late, min(timeout, max(0.0, left)))
            return waiting + self._came_late > 0

    def _places_left(self) -> int:
        return MAX_WAITING - self._waiting - self._pages
