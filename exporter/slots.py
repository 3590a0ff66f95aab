"""A bounded number of threads with a bounded queue; no client can take all of either."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable

import msgspec

from ..core.guard import Guard

MAX_WAITING = 64
"""Of one client; all clients together have twice as much."""


class RequestTask(msgspec.Struct, frozen=True):
    """What to run, and the address of the client that it is for."""

    run: Callable[[], None]
    client: str


class RequestSlots:
    """Runs at most ``limit`` tasks at once, each in a thread, and queues more.

    One client gets all slots but one and half of the queue, and the next slot goes to the client
    with the fewest: if one reads slowly or asks for much, the others still get their answers.
    """

    def __init__(self, limit: int, guard: Guard) -> None:
        self._limit = limit
        self._guard = guard
        self._running: Counter[str] = Counter()
        """How many tasks run, by client."""
        self._waiting: deque[RequestTask] = deque()
        self._changed = threading.Condition()

    def offer(self, task: RequestTask) -> bool:
        """Run ``task`` now or queue it; False if it will not run. Never waits."""
        with self._changed:
            if not self._may_run(task):
                has_room = self._has_room_for(task)
                if has_room:
                    self._waiting.append(task)
                return has_room
            self._running[task.client] += 1
        if self._guard.attempt("exporter", lambda: self._start(task), default=False):
            return True
        with self._changed:
            self._ended(task)
        return False

    def finish(self, seconds: float) -> None:
        """Wait until no task runs, for at most ``seconds``."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running, seconds)

    def _may_run(self, task: RequestTask) -> bool:
        own = self._running[task.client]
        return self._running.total() < self._limit and own < max(1, self._limit - 1)

    def _has_room_for(self, task: RequestTask) -> bool:
        own = sum(one.client == task.client for one in self._waiting)
        return len(self._waiting) < 2 * MAX_WAITING and own < MAX_WAITING

    def _start(self, task: RequestTask) -> bool:
        thread = threading.Thread(
            target=self._run, args=(task,), name="querypulse-http-request", daemon=True
        )
        thread.start()
        return True

    def _run(self, first: RequestTask) -> None:
        task: RequestTask | None = first
        while task is not None:
            self._guard.attempt("exporter", task.run)
            task = self._next(task)

    def _next(self, done: RequestTask) -> RequestTask | None:
        """The next task that may run, by client and age; without one the slot becomes free."""
        with self._changed:
            self._ended(done)
            ready = filter(self._may_run, self._waiting)
            task = min(ready, key=lambda one: self._running[one.client], default=None)
            if task is not None:
                self._waiting.remove(task)
                self._running[task.client] += 1
            return task

    def _ended(self, task: RequestTask) -> None:
        self._running[task.client] -= 1
        # Forget clients without a task: the addresses are not bounded.
        self._running += Counter()
        self._changed.notify_all()
