"""What became of the pushes to one target, as ``/status`` shows it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Pushes(msgspec.Struct, frozen=True):
    """Counts by outcome (``core.outcomes``), the present problem, and the last success."""

    outcomes: Mapping[str, int] = {}
    problem: str = ""
    """Why the last push failed; empty after a success."""
    last_success: float | None = None
    """Unix seconds."""
