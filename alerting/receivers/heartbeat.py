"""Pings a dead man's switch while the worker evaluates: if the pings stop, the switch alerts."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence

from ...core.guard import Guard
from ...core.loop import Loop
from ...core.outcomes import FAILED, OUTCOMES, DeliveryOutcome
from ...core.secret import Secret
from ..alert import Incident
from .heartbeat_ping import START, STOPPED, TEST, Ping, due_at, ping_of, ping_url
from .http import HttpError, HttpPoster
from .http_options import HttpOptions

log = logging.getLogger("querypulse")

NAME = "heartbeat"
RETRY_SECONDS = 15.0
PLAIN_TEXT = {"Content-Type": "text/plain; charset=utf-8"}


class Heartbeat:
    """Healthchecks-style pings from their own thread, each triggered by a ``beat``.

    A worker that hangs sends no beat, so no ping leaves, even if this thread runs.
    ``outcomes`` counts pings by their outcome. ``first`` and ``parting`` are extra pings at the
    beginning and at the end; without ``first``, no ping leaves before one is offered.
    """

    def __init__(
        self,
        url: Secret,
        guard: Guard,
        *,
        name: str = NAME,
        first: Ping | None = START,
        parting: Ping | None = STOPPED,
        interval_seconds: float = 60.0,
        http: HttpOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Check the settings.

        Raises:
            ValueError: ``url`` cannot be used; the message names the setting.

        """
        self.name = name
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._poster = HttpPoster(url, setting="heartbeat_url", http=http)
        self._interval = interval_seconds
        self._clock = clock
        self._wall = wall
        self._guard = guard
        self._loop = Loop(NAME, self._step, guard, last=self._send_last)
        self._run = str(uuid.uuid4())
        self._pid = os.getpid()
        self._problem = ""
        # Shared with the worker; the condition guards them, and is not held during a ping.
        self._changed = threading.Condition()
        self._next = first
        self._parting = parting
        self._last: Ping | None = None
        self._last_at = clock() if first is not None else -math.inf
        self._not_before = -math.inf

    def start(self) -> None:
        """Start the thread; the first ping says that monitoring has started."""
        self._loop.start()

    def try_once(self) -> HttpError | None:
        """Ping in this thread, instead of ``start``; return why the ping was refused, if it was.

        The ping is one for the check's log: it changes no state.
        """
        try:
            return self._send(TEST)
        finally:
            self._poster.close()

    def beat(self, incidents: Sequence[Incident]) -> None:
        """The worker has finished an evaluation with these open incidents. Never waits for a ping.

        A ping that is not due yet is dropped, not kept: by then the worker may hang.
        """
        self.offer(ping_of(incidents))

    def offer(self, ping: Ping) -> None:
        """Send this ping if one is due. Never waits."""
        with self._changed:
            due = max(due_at(ping, self._last, self._last_at, self._interval), self._not_before)
            if self._next is None and self._clock() >= due:
                self._next = ping
                self._changed.notify_all()

    def stop(self, owed: Ping | None = None) -> None:
        """Ask the thread to end; without ``parting``, an ``owed`` ping leaves first, due or not.

        It does not leave if a ping in flight arrives. Never waits.
        """
        if os.getpid() != self._pid:
            return  # in a fork of the driver there is no thread, and nothing to say
        with self._changed:
            # Both at once: the thread may be between two steps, and then sends what it finds.
            self._next = owed or self._next
            self._loop.stop()
            self._changed.notify_all()

    def close(self, timeout: float) -> None:
        """Send that monitoring has stopped, and end after at most ``timeout`` seconds."""
        if os.getpid() != self._pid:
            return
        self.stop()
        self._loop.join(timeout)
        self._guard.attempt(f"close-{NAME}", self._poster.close)

    def _step(self) -> None:
        """Send the next ping once there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._next or self._loop.stopping.is_set())
            ping = self._next
            if ping is None or self._loop.stopping.is_set():
                return
            self._last_at = self._clock()
            self._next = None
        error = self._send(ping)
        with self._changed:
            self._book(ping, error)

    def _send_last(self) -> None:
        if self._parting is None and self._next is not None:
            self._book(self._next, self._send(self._next))
        elif self._parting is not None and self.outcomes[DeliveryOutcome.DELIVERED.value]:
            self._send(self._parting)

    def _send(self, ping: Ping) -> HttpError | None:
        """Ping; return why it was refused, None if it was accepted."""
        try:
            self._poster.post(
                ping.text.encode("utf-8", "replace"),
                self._wall(),
                lambda _: PLAIN_TEXT,
                address=lambda url: ping_url(url, ping.path, self._run),
            )
        except HttpError as error:
            return error
        except Exception:
            self.outcomes[FAILED] += 1
            raise
        return None

    def _book(self, ping: Ping, error: HttpError | None) -> None:
        """Record the outcome of a ping, and how long to pause after an error."""
        if error is None:
            self._last, self._problem = ping, ""
            if self._loop.stopping.is_set():
                self._next = None
            self.outcomes[DeliveryOutcome.DELIVERED.value] += 1
            return
        soon = error.answer is DeliveryOutcome.TRANSIENT
        # A removed switch may be created again, and then waits for the next ping.
        pause = self._interval
        if soon:
            pause = max(min(RETRY_SECONDS, self._interval), error.retry_after or 0.0)
        self._last, self._not_before = None, self._clock() + pause
        self.outcomes[error.answer.value] += 1
        self._note(str(error))

    def _note(self, problem: str) -> None:
        """Log a problem if it is new."""
        if problem != self._problem:
            self._problem = problem
            log.warning("querypulse: %s was not taken: %s", self.name, problem)
