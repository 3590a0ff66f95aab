"""Keeps an alert that fires again and again open, so that it is one incident. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from ...core.durations import duration

CYCLES = 3
WITHIN_SECONDS = 24 * 3600.0
SHORTEST_CALM_SECONDS = 15 * 60.0
LONGEST_CALM_SECONDS = 2 * 3600.0
SHORTEST_NEWS_SECONDS = 120.0
LONGEST_NEWS_SECONDS = 15 * 60.0
MAX_HISTORIES = 1000


class FlapHistory(msgspec.Struct, frozen=True):
    """When one alert last began to fire. Monotonic seconds, on disk Unix seconds.

    ``longest_seconds`` is the longest time without a break for which its finding held.
    """

    key: str
    fired_at: tuple[float, ...] = ()
    longest_seconds: float = 0.0

    @property
    def held_seconds(self) -> float:
        """How long the finding must be absent before the alert resolves; 0 adds nothing.

        From the third time within a day on it is the time that the last three took: an alert that
        fires every 20 minutes must be absent for 40 minutes.
        """
        if len(self.fired_at) < CYCLES:
            return 0.0
        took = self.fired_at[-1] - self.fired_at[0]
        return min(LONGEST_CALM_SECONDS, max(SHORTEST_CALM_SECONDS, took))

    def since(self, begin: float) -> FlapHistory:
        """The history without what is older."""
        return replace(self, fired_at=tuple(at for at in self.fired_at if at >= begin)[-CYCLES:])

    def shifted(self, seconds: float) -> FlapHistory:
        """Convert the times to a clock that is ``seconds`` ahead."""
        return replace(self, fired_at=tuple(at + seconds for at in self.fired_at))


class FlapGuard:
    """Records for a day when each alert began to fire, and how long it lasted."""

    def __init__(self) -> None:
        self._known: dict[str, FlapHistory] = {}

    @property
    def histories(self) -> tuple[FlapHistory, ...]:
        """What the next process needs."""
        return tuple(self._known.values())

    def restore(self, histories: Iterable[FlapHistory], now: float) -> None:
        """Add what earlier processes recorded; a time in the future counts as now."""
        for past in histories:
            mine = self._known.get(past.key, FlapHistory(past.key))
            fired_at = sorted([*(min(at, now) for at in past.fired_at), *mine.fired_at])
            longest = max(past.longest_seconds, mine.longest_seconds)
            self._known[past.key] = FlapHistory(past.key, tuple(fired_at), longest)
        self._forget(now)

    def fires(self, key: str, now: float) -> float:
        """Record that an alert begins to fire; return ``held_seconds``."""
        self._forget(now)
        known = self._known.pop(key, FlapHistory(key))
        self._known[key] = replace(known, fired_at=(*known.fired_at, now)[-CYCLES:])
        if len(self._known) > MAX_HISTORIES:
            del self._known[next(iter(self._known))]
        return self.held_seconds(key)

    def held_seconds(self, key: str) -> float:
        """How long the finding of this alert must be absent before it resolves."""
        return self._known.get(key, FlapHistory(key)).held_seconds

    def lasted(self, key: str, seconds: float) -> None:
        """Record that the finding of this alert held for so long, and is absent now."""
        known = self._known.get(key)
        if known is not None and seconds > known.longest_seconds:
            self._known[key] = replace(known, longest_seconds=seconds)

    def news_seconds(self, key: str) -> float:
        """From when on it is news that this alert, which is held open, fires again.

        That is when it lasts longer than each time before, but at least 2 and at most 15 minutes.
        """
        longest = self._known.get(key, FlapHistory(key)).longest_seconds
        return min(LONGEST_NEWS_SECONDS, max(SHORTEST_NEWS_SECONDS, longest))

    def _forget(self, now: float) -> None:
        fresh = (one.since(now - WITHIN_SECONDS) for one in self._known.values())
        self._known = {one.key: one for one in fresh if one.fired_at}


def note(calm_seconds: float, *, lasts: bool = False) -> str:
    """The annotation of an alert that is held open; ``lasts``: longer than each time before."""
    text = (
        f"it has fired {CYCLES} times within {duration(WITHIN_SECONDS)}: "
        f"held open until {duration(calm_seconds)} of calm"
    )
    return f"{text}; this time it lasts longer than before" if lasts else text
