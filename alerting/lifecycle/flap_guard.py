"""An alert that comes again and again is held open, so that it is one incident. Pure."""

from __future__ import annotations

CYCLES = 3
WITHIN_SECONDS = 24 * 3600.0
SHORTEST_CALM_SECONDS = 15 * 60.0


class FlapGuard:
    """Remembers for a day when each alert fired."""

    def __init__(self) -> None:
        self._fired: dict[str, tuple[float, ...]] = {}

    def fires(self, key: str, now: float) -> float:
        """Take note that an alert begins to fire; for how long it must then stay away.

        0 is as long as any. From the third time within a day on it is as long as these took: an
        alert that comes back every 20 minutes needs 40 minutes of calm.
        """
        self._fired = {
            known: fresh
            for known, times in self._fired.items()
            if (fresh := tuple(at for at in times if now - at <= WITHIN_SECONDS))
        }
        times = self._fired[key] = (*self._fired.get(key, ()), now)[-CYCLES:]
        return max(SHORTEST_CALM_SECONDS, now - times[0]) if len(times) == CYCLES else 0.0


def note(calm_seconds: float) -> str:
    """What an alert says that is held open."""
    return (
        f"it has fired {CYCLES} times within {WITHIN_SECONDS / 3600:.0f} hours: "
        f"held open until {calm_seconds / 60:.0f} min of calm"
    )
