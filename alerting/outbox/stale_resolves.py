"""Resolves of incidents that an earlier process may have left open at a receiver. Pure.

For most of these keys nothing was ever open. So querypulse first asks a receiver that can be asked
which of them are open; to any other it sends few resolves, late, and after all other messages.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from ..alert import Incident
from ..finding import Severity
from ..receivers.receiver import LeftOpen

MAX_REMEMBERED = 20_000
"""The most keys remembered as done; then the oldest may be resolved again."""
ASK_AGAIN_SECONDS = 60.0
"""The time until the next question after one without an answer."""
HELD_SECONDS = 90.0
"""Within this time a running process has posted its open alerts again (every 60 s)."""


class StaleResolves:
    """Each resolve is sent once. ``offer`` replaces the set and withdraws the others.

    A receiver that can be asked is asked twice: an alert that was posted again in between belongs
    to a running process, such as another driver of the same app, and is not resolved. It is asked
    only when this process has no alert under the key: to Alertmanager, a warning of this process
    and a critical alert of an earlier one are two alerts.
    """

    def __init__(self, *, asks: bool) -> None:
        self._asks = asks
        self._waiting: dict[str, Incident] = {}
        self._held: dict[str, Incident] = {}
        """Resolves that wait until this process has no alert under their key."""
        self._seen: dict[str, tuple[float, float]] = {}
        """When each was first found open, and when it had last been posted."""
        self._found: dict[str, Incident] = {}
        self._done: dict[str, None] = {}
        self._ask_at = -math.inf

    @property
    def first_due(self) -> Incident | None:
        """The most likely resolve that can be sent."""
        if not self._asks:
            return next(iter(self._waiting.values()), None)
        return next((one for key, one in self._found.items() if key in self._waiting), None)

    @property
    def are_waiting(self) -> bool:
        """Whether anything must be sent or asked, now or later."""
        return bool(self._waiting)

    @property
    def ask_at(self) -> float | None:
        """When to ask the receiver (monotonic seconds); None if there is nothing to ask."""
        ask_at = min(map(self._due_at, self._unasked()), default=None)
        return None if ask_at is None else max(ask_at, self._ask_at)

    @property
    def unasked(self) -> tuple[Incident, ...]:
        """The incidents for which to ask the receiver whether they are open there."""
        return tuple(self._waiting[key] for key in self._unasked())

    def offer(self, stale_resolves: Iterable[Incident] | None, held: Collection[str] = ()) -> None:
        """Replace the set of resolves (None: keep it); critical ones are sent first.

        Resolves wait whose keys are in ``held``: this process has an alert under them.
        """
        if stale_resolves is not None:
            self._replace(stale_resolves, held)
        for key in [key for key in self._held if key not in held]:
            self._waiting[key] = self._held.pop(key)

    def answered(
        self, asked: Iterable[Incident], found: Iterable[LeftOpen] | None, now: float
    ) -> None:
        """Of the ``asked`` incidents the receiver has ``found`` open; None if it did not answer."""
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
        """Resolve nothing under this key from now on."""
        self._held.pop(key, None)
        self._withdraw(key)
        self._done[key] = None
        if len(self._done) > MAX_REMEMBERED:
            del self._done[next(iter(self._done))]

    def claim(self, key: str) -> Incident | None:
        """The incident to resolve before this process opens one under ``key``; None without one."""
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
