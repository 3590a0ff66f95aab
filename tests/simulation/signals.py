"""The monitor's signals from Spark: events may be late, lost or repeated, polls may fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import count

from querypulse.listener.events import EventKind
from querypulse.listener.mailbox import Received

from .clock import Time

EVERYTHING = "*"


class Faults:
    """The faults of each signal, and their ends."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self._until: dict[tuple[str, str], float] = {}
        self._sizes: dict[tuple[str, str], float] = {}

    def begin(self, kind: str, who: str, seconds: float, size: float = 0.0) -> None:
        """Begin a fault for ``seconds``; ``size`` is its amount, where that applies."""
        self._until[kind, who] = self._time.now + seconds
        self._sizes[kind, who] = size

    def size(self, kind: str, who: str) -> float | None:
        """The amount of the fault for ``who`` now, or None."""
        for name in (who, EVERYTHING):
            if self._until.get((kind, name), 0.0) > self._time.now:
                return self._sizes[kind, name]
        return None

    def holds(self, kind: str, who: str) -> bool:
        return self.size(kind, who) is not None


class SimBus:
    """The queue inside the JVM; the events of one query always keep their order."""

    def __init__(self, time: Time, faults: Faults, wake: Callable[[], None]) -> None:
        self.listens_since = float("inf")
        self.dropped = 0
        """Events that Spark's own queue has dropped, as Spark counts them."""
        self.lost = 0
        """The same since the attach."""
        self.lost_at = float("-inf")
        self.given = 0
        self.repeated = 0
        self.lost_until: dict[str, float] = {}
        """By query: until when its events may be lost or on their way."""
        self.start_unknown_until: dict[str, float] = {}
        """By query: the same for its newest start event that was lost or late."""
        self.drops: Mapping[str, int] = Counter()
        self._time = time
        self._faults = faults
        self._wake = wake
        self._under_way: list[tuple[float, int, str, Received]] = []
        self._newest: dict[str, float] = {}
        self._texts: set[str] = set()
        self._numbers = count()

    @property
    def depth(self) -> int:
        return sum(at <= self._time.now for at, *_ in self._under_way)

    def drops_now(self, who: str) -> bool:
        return self._faults.holds("drop", who)

    def is_timely(self, who: str) -> bool:
        """Whether all events of a query so far have arrived, and the next one will at once."""
        now = self._time.now
        late = max(self._newest.get(who, 0.0), self.lost_until.get(who, 0.0))
        holds = any(self._faults.holds(kind, who) for kind in ("drop", "delay", "probe_misses"))
        return self.listens_since <= now and late < now and not holds

    def lose(self, who: str) -> None:
        """Lose what comes now, with the stream that would bring it; Spark counts nothing."""
        self.lost_until[who] = self._time.now

    def post(self, who: str, kind: EventKind, text: str, *of_start: str) -> None:
        now, drops = self._time.now, self.drops_now(who)
        self.dropped += drops
        if now < self.listens_since:
            return
        if drops:
            self.lost, self.lost_at = self.lost + 1, now
            self._note_unknown(who, kind, now)
            return
        late = self._faults.size("delay", who) or 0.0
        at = max(now + 0.001 + late, self._newest.get(who, 0.0))
        self._newest[who] = at
        if late:
            self._note_unknown(who, kind, at)
        for _ in range(2 if self._faults.holds("repeat", who) else 1):
            received = Received(kind, text, at, *of_start)
            heappush(self._under_way, (at, next(self._numbers), who, received))
        if kind.is_lifecycle:
            self._time.at(at + 0.02, self._wake)

    def take(self, _: float) -> list[Received]:
        """All events that have arrived, in order; never waits."""
        taken = []
        while self._under_way and self._under_way[0][0] <= self._time.now:
            taken.append(heappop(self._under_way)[-1])
        self.given += len(taken)
        for received in taken:
            self.repeated += received.payload in self._texts
            self._texts.add(received.payload)
        return taken

    def _note_unknown(self, who: str, kind: EventKind, until: float) -> None:
        self.lost_until[who] = until
        if kind is EventKind.STARTED:
            self.start_unknown_until[who] = until

    def wake(self) -> None:
        """There is nothing to wake: ``take`` never waits."""
