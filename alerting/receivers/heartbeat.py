"""Pings a dead man's switch for as long as the worker judges: its silence is the alarm."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence

from ...listener.guard import Guard
from ...listener.loop import Loop
from ..alert import Incident
from .answer import DeliveryOutcome
from .heartbeat_ping import START, STOPPED, TEST, Ping, due_at, ping_of, ping_url
from .http import HttpError, HttpPoster
from .http_options import HttpOptions
from .secret import Secret

log = logging.getLogger("querypulse")

NAME = "heartbeat"
RETRY_SECONDS = 15.0
OUTCOMES = (*(answer.value for answer in DeliveryOutcome), "failed")
PLAIN_TEXT = {"Content-Type": "text/plain; charset=utf-8"}


class Heartbeat:
    """Healthchecks-style pings from a thread of their own, each driven by a ``beat``.

    A worker that hangs beats no more, so no ping leaves, however well this thread is.
    ``outcomes`` counts pings by what became of them. ``first`` and ``parting`` are said besides, at
    the beginning and at the end; without a ``first`` one nothing is said before it is offered.
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
        """Begin; the first ping says that the watch has started."""
        self._loop.start()

    def try_once(self) -> HttpError | None:
        """Ping in this thread, in place of ``start``, and say why it was not taken, if so.

        The ping is one for the check's log: it changes no state.
        """
        try:
            return self._send(TEST)
        finally:
            self._poster.close()

    def beat(self, incidents: Sequence[Incident]) -> None:
        """The worker has judged, and this is all that is open. Never waits for a ping.

        What is not due yet is forgotten, not kept for later: by then the worker may hang.
        """
        self.offer(ping_of(incidents))

    def offer(self, ping: Ping) -> None:
        """Let this ping leave, if one is due. Never waits."""
        with self._changed:
            due = max(due_at(ping, self._last, self._last_at, self._interval), self._not_before)
            if self._next is None and self._clock() >= due:
                self._next = ping
                self._changed.notify_all()

    def stop(self, owed: Ping | None = None) -> None:
        """Ask it to end; without a parting word, one that is ``owed`` leaves first, due or not.

        It does not leave if a ping that is under way arrives. Never waits.
        """
        if os.getpid() != self._pid:
            return  # in a fork of the driver there is no thread, and nothing to say
        with self._changed:
            # Both at once: the thread may be between two steps, and then sends what it finds.
            self._next = owed or self._next
            self._loop.stop()
            self._changed.notify_all()

    def close(self, timeout: float) -> None:
        """Say that the watch has stopped, and end after at most ``timeout`` seconds."""
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
        """Ping; returns why it was not taken, None if it was."""
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
            self.outcomes["failed"] += 1
            raise
        return None

    def _book(self, ping: Ping, error: HttpError | None) -> None:
        """Note what became of a ping, and how long to leave the place alone after an error."""
        if error is None:
            self._last, self._problem = ping, ""
            if self._loop.stopping.is_set():
                self._next = None
            self.outcomes[DeliveryOutcome.DELIVERED.value] += 1
            return
        soon = error.answer is DeliveryOutcome.TRANSIENT
        # A switch that was removed may be made anew, and then waits for the next ping.
        pause = self._interval
        if soon:
            pause = max(min(RETRY_SECONDS, self._interval), error.retry_after or 0.0)
        self._last, self._not_before = None, self._clock() + pause
        self.outcomes[error.answer.value] += 1
        self._note(str(error))

    def _note(self, problem: str) -> None:
        """Log a problem when it is news."""
        if problem != self._problem:
            self._problem = problem
            log.warning("querypulse: %s was not taken: %s", self.name, problem)
