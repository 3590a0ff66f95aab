"""What reaches the monitor of what Spark does: events late, lost or twice, a probe with bad days."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import count

from querypulse.listener.events import EventKind
from querypulse.listener.received import Received

from .clock import Time

EVERYTHING = "*"


class Faults:
    """What is wrong with which signal, and until when."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self._until: dict[tuple[str, str], float] = {}
        self._sizes: dict[tuple[str, str], float] = {}

    def begin(self, kind: str, who: str, seconds: float, size: float = 0.0) -> None:
        """From now on for so long; ``size`` is by how much, where that means something."""
        self._until[kind, who] = self._time.now + seconds
        self._sizes[kind, who] = size

    def size(self, kind: str, who: str) -> float | None:
        """By how much it is wrong for this one now; None when it is not."""
        for name in (who, EVERYTHING):
            if self._until.get((kind, name), 0.0) > self._time.now:
                return self._sizes[kind, name]
        return None

    def holds(self, kind: str, who: str) -> bool:
        """Whether it is wrong for this one now."""
        return self.size(kind, who) is not None


class Bus:
    """The queue inside the JVM; what one query does keeps its order, whatever happens to it."""

    def __init__(self, time: Time, faults: Faults, wake: Callable[[], None]) -> None:
        self.listens_since = float("inf")
        self.lost = 0
        """What Spark's own queue has dropped, as Spark counts it."""
        self.given = 0
        self.repeated = 0
        self.lost_until: dict[str, float] = {}
        """By query: until when events of it may be missing or on their way."""
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
        """Events that have arrived and wait."""
        return sum(at <= self._time.now for at, *_ in self._under_way)

    def post(
        self, who: str, kind: EventKind, text: str, session: str = "", trigger: str = ""
    ) -> None:
        """Spark posts an event of the query ``who``."""
        now = self._time.now
        if now < self.listens_since:
            return
        if self._faults.holds("drop", who):
            self.lost += 1
            self.lost_until[who] = now
            return
        late = self._faults.size("delay", who) or 0.0
        at = max(now + 0.001 + late, self._newest.get(who, 0.0))
        self._newest[who] = at
        if late:
            self.lost_until[who] = at
        for _ in range(2 if self._faults.holds("repeat", who) else 1):
            received = Received(kind, text, at, session, trigger)
            heappush(self._under_way, (at, next(self._numbers), who, received))
        if kind.is_lifecycle:
            self._time.at(at + 0.02, self._wake)

    def take(self, timeout: float) -> list[Received]:
        """All that has arrived, in the order of arrival; never waits."""
        del timeout
        taken = []
        while self._under_way and self._under_way[0][0] <= self._time.now:
            taken.append(heappop(self._under_way)[-1])
        self.given += len(taken)
        for one in taken:
            self.repeated += one.payload in self._texts
            self._texts.add(one.payload)
        return taken

    def wake(self) -> None:
        """Nothing waits here."""
