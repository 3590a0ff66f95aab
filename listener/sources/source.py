"""What the source reader asks of a source, and of what finds the sources of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..query import Query
from .report import SourcePoll


class SourceError(Exception):
    """A source did not answer; the message is short and holds no secret."""


class SourceSilentError(SourceError):
    """Nobody answered within the time given: the whole system is slow or away."""


class Source(Protocol):
    """One source of a run, of which somebody else than Spark can be asked."""

    @property
    def address(self) -> str:
        """Where the system is; sources at one address share its silence."""
        ...

    def poll(self) -> SourcePoll:
        """Ask; takes seconds at most. Raises SourceError."""
        ...

    def close(self) -> None:
        """Let go of connections; never raises."""
        ...


class Sources(Protocol):
    """Finds the sources of a run."""

    def open(self, query: Query) -> Mapping[int, Source] | None:
        """By index; None where Spark does not know them yet. Raises SourceError."""
        ...

    def release(self, run_id: str) -> None:
        """Forget a run that will not be opened again."""
        ...
