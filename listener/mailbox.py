"""How events get from their threads to the worker, bounded and without waiting, and what else the
worker takes from its inbox.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import count
from math import inf
from operator import itemgetter
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from .events import Event, EventKind
from .probe_report import Context

T = TypeVar("T")

LIFECYCLE_CAPACITY = 10_000
_DROPS = "progress_mailbox_full", "lifecycle_mailbox_full"


class Mailbox(Generic[T]):
    """Two bounded queues in one order: one for progress, one for starts and ends.

    ``put`` takes no lock and never waits, so Spark's own threads may call it. Progress wakes
    the taking thread only when its queue is half full, because that thread would compete for
    the GIL with the callback that has to answer Spark.
    """

    def __init__(
        self, progress_capacity: int, lifecycle_capacity: int = LIFECYCLE_CAPACITY
    ) -> None:
        self.drops = dict.fromkeys(_DROPS, 0)
        """Items dropped since the start, by queue."""
        self._capacities = progress_capacity, lifecycle_capacity
        self._lanes: tuple[deque[tuple[int, T]], ...] = deque(), deque()
        self._numbers = count()
        self._wake: SimpleQueue[None] = SimpleQueue()

    def put(self, item: T, *, lifecycle: bool) -> bool:
        """Queue one item; False when its queue is full and the item was dropped."""
        lane = self._lanes[lifecycle]
        capacity = self._capacities[lifecycle]
        if len(lane) >= capacity:
            self.drops[_DROPS[lifecycle]] += 1
            return False
        lane.append((next(self._numbers), item))
        if lifecycle or len(lane) * 2 == capacity:
            self._wake.put(None)
        return True

    def wake(self) -> None:
        """Make a waiting ``take`` return at once."""
        self._wake.put(None)

    def take(self, timeout: float) -> list[T]:
        """All queued items, in the order they were put.

        Waits up to ``timeout`` seconds for the first start, end or ``wake``, or for a half-full
        progress queue.
        """
        try:
            self._wake.get(timeout=timeout)
            while True:
                self._wake.get_nowait()
        except Empty:
            pass
        # Leave items with later numbers: the queues are drained one after the other, and a
        # producer as fast as the consumer must not keep it here.
        end = next(self._numbers)
        items = list[tuple[int, T]]()
        for lane in self._lanes:
            while lane and lane[0][0] < end:
                items.append(lane.popleft())
        return [item for _, item in sorted(items, key=itemgetter(0))]

    @property
    def depth(self) -> int:
        """Items queued now, in both queues."""
        return sum(map(len, self._lanes))


class Received(NamedTuple):
    """One event as it arrived, as JSON text or as a JVM handle with ``json()``.

    ``at`` is the monotonic time of its arrival in seconds. The last four are of a started run, see
    ``Started``; they are empty if the run could not be queried in time.
    """

    kind: EventKind
    payload: Any
    at: float
    session: str = ""
    trigger: str = ""
    checkpoint: str = ""
    replaced: str = ""


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """An event, when it arrived, and the state of the SparkContext when it was read."""

    event: Event
    at: float
    context: Context = Context.RUNNING


class Marker(threading.Event):
    """Follows everything received so far; set once the worker has evaluated all of that."""


class ExpectStop(msgspec.Struct, frozen=True):
    """Somebody announces that the query of this name, or only of this label, will be stopped.

    A run that still goes on at ``until``, in monotonic seconds, is not to be stopped any more.
    """

    name: str
    is_label: bool = False
    until: float = inf


class ExpectEnd(msgspec.Struct, frozen=True):
    """Somebody announces that the whole driver will end before ``until``, in monotonic seconds."""

    until: float


class Forget(msgspec.Struct, frozen=True):
    """The application announces that the query of this name, or label, will not return."""

    name: str
    is_label: bool = False


class ProgramEnd(msgspec.Struct, frozen=True):
    """How the main program ended, which nobody had announced.

    ``how`` says it in words. ``has_failed``: by an exception. ``may_be_meant``: it is a test, or
    the application's handler of a signal may have ended it. ``is_explained``: the application has
    just been informed of a failure, which was reported.
    """

    how: str
    has_failed: bool = False
    may_be_meant: bool = False
    is_explained: bool = False


class Ending(msgspec.Struct, frozen=True):
    """The process is ending; ``crashed`` if that is not intended.

    ``program``: how the main program ended, if that is what ends the process.
    """

    crashed: bool
    program: ProgramEnd | None = None


Item = Arrived | Marker | ExpectStop | ExpectEnd | Forget | Ending
Inbox = Mailbox[Item]
"""The worker takes its items from this mailbox."""
