"""Turns what the listener heard into observations, away from Spark's threads.

This thread may wait for the JVM; the worker, which judges, never does.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import msgspec

from .decode import DecodeError, decode
from .events import Event, EventKind, Terminated
from .guard import Guard
from .health_listener import Heard
from .mailbox import Mailbox
from .probing import Context

TAKE_SECONDS = 0.1


class Arrived(msgspec.Struct, frozen=True):
    """An event, when it arrived, and the SparkContext as seen when it was read."""

    event: Event
    at: float
    context: Context = Context.RUNNING


class Marker:
    """Travels behind everything heard so far; ``passed`` is set where it ends up."""

    def __init__(self) -> None:
        self.passed = threading.Event()


class ExpectStop(msgspec.Struct, frozen=True):
    """The application says that it is going to stop the query of this name."""

    name: str


Item = Arrived | Marker | ExpectStop
Inbox = Mailbox[Item]
"""What the worker takes from."""


class EventReader:
    """One step: take what was heard, read it, decode it, pass it on."""

    def __init__(
        self,
        heard: Mailbox[Heard | Marker],
        arrived: Inbox,
        guard: Guard,
        *,
        context: Callable[[], Context],
        on_started: Callable[[], None],
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._heard = heard
        self._arrived = arrived
        self._guard = guard
        self._context = context
        self._on_started = on_started

    def step(self) -> None:
        """Read what waits; a marker is passed on after everything that came with it."""
        items = self._heard.take(TAKE_SECONDS)
        for item in items:
            if isinstance(item, Heard):
                self._guard.attempt("reader", lambda heard=item: self._read(heard))  # type: ignore[misc]
        for item in items:
            if isinstance(item, Marker):
                self._arrived.put(item, lifecycle=True)

    def _read(self, heard: Heard) -> None:
        text = heard.payload if isinstance(heard.payload, str) else heard.payload.json()
        try:
            event = decode(heard.kind, text)
        except DecodeError:
            self.dropped["undecodable"] += 1
            return
        if heard.kind is EventKind.STARTED:
            self._on_started()
        arrived = Arrived(event, heard.at, self._context_of(event))
        if not self._arrived.put(arrived, lifecycle=heard.kind.is_lifecycle):
            self.dropped["mailbox_full"] += 1

    def _context_of(self, event: Event) -> Context:
        """The SparkContext at a death; a JVM that cannot be asked takes no death with it."""
        if not isinstance(event, Terminated) or event.exception is None:
            return Context.RUNNING
        seen = [Context.RUNNING]
        self._guard.attempt("reader", lambda: seen.append(self._context()))
        return seen[-1]
