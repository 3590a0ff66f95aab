"""A run's committed offsets in one of its sources, read from Spark."""

from __future__ import annotations

from typing import Any

from ..offsets import Position, parse_offsets


def committed_in(execution: Any, stream: Any) -> dict[str, Position]:
    """The last committed offsets by partition; empty without any, or for an unknown shape."""
    offset = execution.committedOffsets().get(stream)
    positions = parse_offsets(offset.get().json()) if offset.isDefined() else None
    return positions if isinstance(positions, dict) else {}
