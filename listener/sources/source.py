"""What sources have in common: their interfaces, and how they read a run's committed offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..offsets import Position, parse_offsets
from ..query import Query
from .report import SourcePoll


class SourceError(Exception):
    """A source did not answer; the message is short and holds no secret."""


class SourceSilentError(SourceError):
    """The system did not answer in time: it is slow or unreachable."""


class Source(Protocol):
    """One source of a run whose system can be polled without Spark."""

    @property
    def address(self) -> str:
        """Where the system is; if it does not answer, no source at this address is polled."""
        ...

    def poll(self) -> SourcePoll:
        """Poll the system; takes a few seconds at most. Raises SourceError."""
        ...

    def close(self) -> None:
        """Close the connections; never raises."""
        ...


class Sources(Protocol):
    """Finds the sources of a run."""

    def open(self, query: Query) -> Mapping[int, Source] | None:
        """The sources by index; None while Spark does not know them yet. Raises SourceError."""
        ...

    def release(self, run_id: str) -> None:
        """Forget a run that will not be opened again."""
        ...


def committed_in(execution: Any, stream: Any) -> dict[str, Position]:
    """The last committed offsets by partition; empty without any, or for an unknown shape."""
    offset = execution.committedOffsets().get(stream)
    positions = parse_offsets(offset.get().json()) if offset.isDefined() else None
    return positions if isinstance(positions, dict) else {}
