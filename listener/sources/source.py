"""What sources have in common: their errors, and how they read a run's committed offsets."""

from __future__ import annotations

from typing import Any

from ..offsets import Position, parse_offsets


class SourceError(Exception):
    """A source did not answer; the message is short and holds no secret."""


class SourceSilentError(SourceError):
    """The system did not answer in time: it is slow or unreachable."""


def committed_in(execution: Any, stream: Any) -> dict[str, Position]:
    """The last committed offsets by partition; empty without any, or for an unknown shape."""
    offset = execution.committedOffsets().get(stream)
    positions = parse_offsets(offset.get().json()) if offset.isDefined() else None
    return positions if isinstance(positions, dict) else {}
