"""What a process before this one may have left open at a receiver, and is over. Pure.

No receiver can be spared the question: of most keys nothing was ever open. So a receiver that can
be asked is asked first, and one that cannot is sent few, late, and behind all else.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from ..alert import Incident
from ..finding import Severity
from ..receivers.receiver import LeftOpen

MAX_REMEMBERED = 20_000
"""So many keys are remembered as done; one more and the oldest may be resolved anew."""
ASK_AGAIN_SECONDS = 60.0
"""After a question that got no answer."""
HELD_SECONDS = 90.0
"""Within this time a process that lives has posted again what it has open (every 60 s)."""


class StaleResolves:
    """Each is sent once. ``offer`` replaces the whole set: what is offered no more is withdrawn.

    A receiver that can be asked is asked twice: what somebody has posted in between belongs to a
    process that lives, such as another driver of the same app, and is left alone. It is asked once
    this process has nothing of its own under the key: to Alertmanager, a warning of ours and a
    critical alert of an earlier process are two alerts.
    """

    def __init__(self, *, asks: bool) -> None:
        self._asks = asks
        self._waiting: dict[str, Incident] = {}
        self._held: dict[str, Incident] = {}
        """What waits until this process has nothing of its own under the key."""
        self._seen: dict[str, tuple[float, float]] = {}
        """When it was first found open, and when it had been posted by then."""
        self._found: dict[str, Incident] = {}
        self._done: dict[str, None] = {}
        self._ask_at = -math.inf

    @property
    def first_due(self) -> Incident | None:
        """What can be sent, the likeliest."""
        if not self._asks:
            return next(iter(self._waiting.values()), None)
        return next((one for key, one in self._found.items() if key in self._waiting), None)

    @property
    def are_waiting(self) -> bool:
        """Whether anything is to be sent or asked, now or later."""
        return bool(self._waiting)

    @property
    def ask_at(self) -> float | None:
        """When the receiver is to be asked (monotonic seconds); None when there is no question."""
        ask_at = min(map(self._due_at, self._unasked()), default=None)
        return None if ask_at is None else max(ask_at, self._ask_at)

    @property
    def unasked(self) -> tuple[Incident, ...]:
        """Of what the receiver has to be asked whether it is open there."""
        return tuple(self._waiting[key] for key in self._unasked())

    def offer(self, stale_resolves: Iterable[Incident] | None, held: Collection[str] = ()) -> None:
        """Replace the set of what is over, None for as before; what can wake somebody goes first.

        What this process itself holds under one of the keys ``held`` is left out.
        """
        if stale_resolves is not None:
            self._replace(stale_resolves, held)
        for key in [key for key in self._held if key not in held]:
            self._waiting[key] = self._held.pop(key)

    def answered(
        self, asked: Iterable[Incident], found: Iterable[LeftOpen] | None, now: float
    ) -> None:
        """The receiver has ``found`` open of what it was ``asked``; None when it did not answer."""
        if found is None:
            self._ask_at = now + ASK_AGAIN_SECONDS
            return
        known = {one.incident.key: one for one in found}
        for key in [one.key for one in asked if one.key in self._waiting]:
            left = known.get(key)
            if left is None:
                self.settle(key)
                continue
            seen_at, posted_at = self._seen.setdefault(key, (now, left.posted_at))
            if left.posted_at > posted_at:
                self.settle(key)
            elif now - seen_at >= HELD_SECONDS:
                self._found[key] = left.incident

    def settle(self, key: str) -> None:
        """Nothing is to be resolved under this key (any more)."""
        self._held.pop(key, None)
        self._withdraw(key)
        self._done[key] = None
        if len(self._done) > MAX_REMEMBERED:
            del self._done[next(iter(self._done))]

    def claim(self, key: str) -> Incident | None:
        """What has to be resolved before this process opens an incident under ``key``, if any."""
        before = self._waiting.get(key)
        if not self._asks:
            self.settle(key)
            return before
        self._withdraw(key)
        if before is not None:
            self._held[key] = before
        return None

    def _replace(self, stale_resolves: Iterable[Incident], held: Collection[str]) -> None:
        critical: dict[str, Incident] = {}
        others: dict[str, Incident] = {}
        self._held = {}
        for one in stale_resolves:
            key = one.key
            if key in self._done:
                continue
            if key in held:
                self._held[key] = one
            elif one.severity == Severity.CRITICAL.value:
                critical[key] = one
            else:
                others[key] = one
        self._waiting = {**critical, **others}

    def _withdraw(self, key: str) -> None:
        self._waiting.pop(key, None)
        self._seen.pop(key, None)
        self._found.pop(key, None)

    def _unasked(self) -> list[str]:
        return [key for key in self._waiting if key not in self._found] if self._asks else []

    def _due_at(self, key: str) -> float:
        seen = self._seen.get(key)
        return -math.inf if seen is None else seen[0] + HELD_SECONDS
