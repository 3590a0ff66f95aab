"""A bounded number of threads with a bounded queue."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ..core.guard import Guard

MAX_WAITING = 64


class RequestSlots:
    """Runs at most ``limit`` tasks at once, each in a thread; queues up to ``MAX_WAITING`` more."""

    def __init__(self, limit: int, guard: Guard) -> None:
        self._limit = limit
        self._guard = guard
        self._busy = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()

    def offer(self, task: Callable[[], None]) -> bool:
        """Run ``task`` now or queue it; False if it will not run. Never waits."""
        with self._changed:
            if self._busy >= self._limit:
                has_room = len(self._waiting) < MAX_WAITING
                if has_room:
                    self._waiting.append(task)
                return has_room
            self._busy += 1
        if self._guard.attempt("exporter", lambda: self._start(task), default=False):
            return True
        with self._changed:
            self._busy -= 1
            self._changed.notify_all()
        return False

    def finish(self, seconds: float) -> None:
        """Wait until no task runs, for at most ``seconds``."""
        with self._changed:
            self._changed.wait_for(lambda: self._busy == 0, seconds)

    def _start(self, task: Callable[[], None]) -> bool:
        thread = threading.Thread(
            target=self._run, args=(task,), name="querypulse-http-request", daemon=True
        )
        thread.start()
        return True

    def _run(self, task: Callable[[], None] | None) -> None:
        while task is not None:
            self._guard.attempt("exporter", task)
            task = self._next()

    def _next(self) -> Callable[[], None] | None:
        """The next queued task; without one the slot becomes free."""
        with self._changed:
            if self._waiting:
                return self._waiting.popleft()
            self._busy -= 1
            self._changed.notify_all()
            return None
