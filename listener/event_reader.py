"""Decodes received events in a thread of its own, not on Spark's threads.

This thread may wait for the JVM; the worker thread, which evaluates, never does.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from ..core.guard import Guard
from .events import DecodeError, Event, Progress, Started, Terminated, decode
from .mailbox import Arrived, Inbox, Mailbox, Marker, Received
from .probe_report import Context
from .spark.event_paths import EventQueue
from .spark.jvm import NETWORK_ERRORS

TAKE_SECONDS = 1.0
RETRY_SECONDS = 0.5
MAX_ANSWERS = 1000
"""A marker follows at most this many answers, so that constant events cannot hold it back."""
REMEMBERED = 1024
"""How many events are remembered to recognise duplicates."""

OnEvent = Callable[[str, str, str, float], object]
"""Gets the id of a query, the kind of its event, Spark's JSON, and when that arrived."""


class EventReader:
    """One step: take the received events, read, decode and pass on each one once.

    An event arrives twice if the listener was added to a session twice. ``poke`` is called
    after a start, and when the JVM does not answer; ``context`` at a failure; ``on_event`` with
    each event. A JVM that has ended is not asked again. ``observed`` names the values of
    ``df.observe()`` to keep.
    """

    def __init__(
        self,
        source: EventQueue | Mailbox[Received],
        arrived: Inbox,
        guard: Guard,
        *,
        context: Callable[[], Context],
        poke: Callable[[], None],
        jvm_ended: Callable[[], bool] = lambda: False,
        on_event: OnEvent = lambda *_: None,
        observed: Sequence[str] = (),
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self.source = source
        self._arrived = arrived
        self._guard = guard
        self._context = context
        self._poke = poke
        self._jvm_ended = jvm_ended
        self._on_event = on_event
        self._observed = observed
        self._source_ended = False
        self._pause = pause
        self._markers: deque[Marker] = deque()
        self._seen: OrderedDict[int, None] = OrderedDict()

    @property
    def drops(self) -> dict[str, int]:
        """Events lost here and on the way to the worker, by reason."""
        return {**self.dropped, **self._arrived.drops}

    def mark(self, marker: Marker) -> None:
        """Queue ``marker`` behind everything received so far.

        Where the events wait in the JVM, ``wake_if_marked`` speeds it up.
        """
        self._markers.append(marker)
        if isinstance(self.source, Mailbox):
            self.source.wake()

    def wake_if_marked(self) -> None:
        """End the wait for events if a marker is queued; the caller may block on the JVM."""
        if self._markers:
            self.source.wake()

    def step(self) -> None:
        """Read the queued events; pass each marker on after all events received before it."""
        marked = self._rest() if self._source_ended else self._take()
        for _ in range(marked):
            self._arrived.put(self._markers.popleft(), lifecycle=True)

    def _take(self) -> int:
        """Read the queued events; return how many markers can be passed on."""
        try:
            self._read_all(self.source.take(TAKE_SECONDS))
            marked = len(self._markers)
            for _ in range(MAX_ANSWERS if marked else 0):
                self._read_all(self.source.take(0))
                if not self.source.depth:
                    break
        except NETWORK_ERRORS:
            self._source_ended = self._jvm_ended()
            self._poke()
            return self._rest()
        return marked

    def _rest(self) -> int:
        """Without a JVM there is nothing to wait for: pass every marker on."""
        marked = len(self._markers)
        self._pause(RETRY_SECONDS)
        return marked

    def _read_all(self, received: list[Received]) -> None:
        for event in received:
            self._guard.attempt("reader", partial(self._read, event))

    def _read(self, received: Received) -> None:
        payload = received.payload
        text = payload if isinstance(payload, str) else payload.json()
        try:
            event = decode(received.kind, text, self._observed)
        except DecodeError:
            self.dropped["undecodable"] += 1
            return
        if not self._remember(text):
            return
        if isinstance(event, Progress) and event.lost_parts:
            self.dropped["undecodable_part"] += len(event.lost_parts)
        if isinstance(event, Started):
            event = replace(
                event,
                session=received.session,
                trigger=received.trigger,
                checkpoint=received.checkpoint,
                replaced=received.replaced,
            )
            self._poke()
        arrived = Arrived(event, received.at, self._context_of(event))
        self._arrived.put(arrived, lifecycle=received.kind.is_lifecycle)
        self._on_event(event.query_id, received.kind.value, text, received.at)

    def _remember(self, text: str) -> bool:
        """Remember an event, which names its run and batch or time; return whether it is new."""
        key = hash(text)
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return True

    def _context_of(self, event: Event) -> Context:
        """The SparkContext's state at a failure; an unreachable JVM does not lose the failure."""
        if not isinstance(event, Terminated) or event.exception is None:
            return Context.RUNNING
        return self._guard.attempt("reader", self._context, default=Context.RUNNING)
