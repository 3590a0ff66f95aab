"""What a process before this one may have left open at a receiver, and is over. Pure.

No receiver can be spared the question: of most keys nothing was ever open. So a receiver that can
be asked is asked first, and one that cannot is sent few, late, and behind all else.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from ..alert import Incident

MAX_REMEMBERED = 20_000
"""So many keys are remembered as done; one more and the oldest may be resolved anew."""
ASK_AGAIN_SECONDS = 60.0
"""After a question that got no answer."""


class Closings:
    """Each is sent once. ``offer`` replaces the whole set: what is offered no more is withdrawn."""

    def __init__(self, *, asks: bool) -> None:
        self._asks = asks
        self._waiting: dict[str, Incident] = {}
        self._found: dict[str, Incident] = {}
        self._done: dict[str, None] = {}
        self._ask_at = -math.inf

    @property
    def due(self) -> tuple[Incident, ...]:
        """What can be sent."""
        if not self._asks:
            return tuple(self._waiting.values())
        return tuple(one for key, one in self._found.items() if key in self._waiting)

    @property
    def are_waiting(self) -> bool:
        """Whether anything is to be sent or asked, now or later."""
        return bool(self._waiting)

    @property
    def ask_at(self) -> float | None:
        """When the receiver is to be asked (monotonic seconds); None when there is no question."""
        return self._ask_at if self.unasked else None

    @property
    def unasked(self) -> tuple[Incident, ...]:
        """Of what the receiver has to be asked whether it is open there."""
        if not self._asks:
            return ()
        return tuple(one for key, one in self._waiting.items() if key not in self._found)

    def offer(self, closings: Iterable[Incident]) -> None:
        """Replace the set of what is over."""
        self._waiting = {one.key: one for one in closings if one.key not in self._done}

    def answered(
        self, asked: Iterable[Incident], found: Collection[Incident] | None, now: float
    ) -> None:
        """The receiver has ``found`` open of what it was ``asked``; None when it did not answer."""
        if found is None:
            self._ask_at = now + ASK_AGAIN_SECONDS
            return
        self._found |= {one.key: one for one in found}
        for one in asked:
            if one.key not in self._found:
                self.settle(one.key)

    def settle(self, key: str) -> None:
        """Nothing is to be resolved under this key (any more)."""
        self._waiting.pop(key, None)
        self._found.pop(key, None)
        self._done[key] = None
        if len(self._done) > MAX_REMEMBERED:
            del self._done[next(iter(self._done))]

    def claim(self, key: str) -> Incident | None:
        """What has to be resolved before this process opens an incident under ``key``, if any."""
        before = None if self._asks else self._waiting.get(key)
        self.settle(key)
        return before
