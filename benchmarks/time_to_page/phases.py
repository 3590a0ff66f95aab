"""The phases of a run, and who takes part in each."""

from .desk import CANDIDATES, EVENT_ONLY

IDLE, SHARED, CLOGGED = PHASES = ("idle", "shared", "clogged")


def candidates(phase: str) -> tuple[str, ...]:
    """Those that watch: a stock listener would not leave the bus idle."""
    return tuple(name for name in CANDIDATES if phase != IDLE or name != EVENT_ONLY)
