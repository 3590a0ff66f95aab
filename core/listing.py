"""Lists of names for people, with a bound."""

from __future__ import annotations

from collections.abc import Sequence

MAX_NAMES = 10


def listed(names: Sequence[str], most: int = MAX_NAMES) -> str:
    """``a, b and 7 more``: the first ``most`` names and the count of the others."""
    shown, more = ", ".join(names[:most]), len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown
