"""Where a run stands in one of its sources, as Spark itself has it."""

from __future__ import annotations

from typing import Any

from ..offsets import Position, parse_offsets


def committed_in(execution: Any, stream: Any) -> dict[str, Position]:
    """Its last committed offsets by partition; empty where there are none, or of another shape."""
    offset = execution.committedOffsets().get(stream)
    positions = parse_offsets(offset.get().json()) if offset.isDefined() else None
    return positions if isinstance(positions, dict) else {}
