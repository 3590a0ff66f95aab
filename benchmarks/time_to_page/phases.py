"""The phases of a run, and the candidates in each."""

from .page_receiver import CANDIDATES, EVENT_ONLY

IDLE, SHARED, CLOGGED = PHASES = ("idle", "shared", "clogged")


def candidates(phase: str) -> tuple[str, ...]:
    """The candidates of a phase: a stock listener would not leave the bus idle."""
    return tuple(name for name in CANDIDATES if phase != IDLE or name != EVENT_ONLY)
