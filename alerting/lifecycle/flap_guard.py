"""Keeps an alert that fires again and again open, so that it is one incident. Pure."""

from __future__ import annotations

from ...core.durations import duration

CYCLES = 3
WITHIN_SECONDS = 24 * 3600.0
SHORTEST_CALM_SECONDS = 15 * 60.0


class FlapGuard:
    """Records for a day when each alert began to fire."""

    def __init__(self) -> None:
        self._fired: dict[str, tuple[float, ...]] = {}

    def fires(self, key: str, now: float) -> float:
        """Record that an alert begins to fire; return the seconds it must be absent to resolve.

        0 adds nothing to the usual time. From the third time within a day on it is the time that
        the last three took: an alert that fires every 20 minutes must be absent for 40 minutes.
        """
        self._fired = {
            known: fresh
            for known, times in self._fired.items()
            if (fresh := tuple(at for at in times if now - at <= WITHIN_SECONDS))
        }
        times = self._fired[key] = (*self._fired.get(key, ()), now)[-CYCLES:]
        return max(SHORTEST_CALM_SECONDS, now - times[0]) if len(times) == CYCLES else 0.0


def note(calm_seconds: float) -> str:
    """The annotation of an alert that is held open."""
    return (
        f"it has fired {CYCLES} times within {duration(WITHIN_SECONDS)}: "
        f"held open until {duration(calm_seconds)} of calm"
    )
