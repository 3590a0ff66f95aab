"""An alert that comes again and again is held, so that it is one page and not many. Pure."""

from __future__ import annotations

CYCLES = 3
WITHIN_SECONDS = 30 * 60.0
CALM_SECONDS = 15 * 60.0
"""So long must an alert stay away that has fired ``CYCLES`` times ``WITHIN_SECONDS``."""

NOTE = (
    f"it has fired {CYCLES} times within {WITHIN_SECONDS / 60:.0f} min: "
    f"held open until {CALM_SECONDS / 60:.0f} min of calm"
)


class FlapGuard:
    """Remembers for half an hour when each alert fired."""

    def __init__(self) -> None:
        self._fired: dict[str, tuple[float, ...]] = {}

    def fires(self, key: str, now: float) -> bool:
        """Take note that an alert begins to fire; whether it is to be held this time."""
        self._fired = {
            known: fresh
            for known, times in self._fired.items()
            if (fresh := tuple(at for at in times if now - at <= WITHIN_SECONDS))
        }
        self._fired[key] = (*self._fired.get(key, ()), now)[-CYCLES:]
        return len(self._fired[key]) == CYCLES
