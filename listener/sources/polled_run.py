"""The sources of one run: when each is due, its last poll, and its last error."""

from __future__ import annotations

import logging
import math

from ..query import Query
from .report import SourcePoll
from .source import Source, SourceError, Sources

log = logging.getLogger("querypulse")


class PolledSource:
    """One source of a run."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.due_at = 0.0
        self.last: SourcePoll | None = None
        self.trouble = ""


class PolledRun:
    """The sources of one run, once they are found."""

    query: Query

    def __init__(self) -> None:
        self.sources: dict[int, PolledSource] = {}
        self.polled_at = -math.inf
        self.waits = False
        """Whether it is due but other runs come first."""
        self._found = False
        self._find_at = 0.0
        self._refusal = ""
        self._logged = False

    @property
    def polls(self) -> dict[int, SourcePoll]:
        """The newest poll of each source."""
        return {index: one.last for index, one in self.sources.items() if one.last is not None}

    @property
    def trouble(self) -> str:
        """Why some sources have not answered; empty when all have."""
        troubles = [self._refusal, *(one.trouble for one in self.sources.values())]
        return "; ".join(dict.fromkeys(text for text in troubles if text))

    def due(self, now: float) -> list[PolledSource]:
        """The sources to poll now."""
        return [one for one in self.sources.values() if one.due_at <= now]

    def find(self, sources: Sources, now: float, retry: float) -> None:
        """Find the sources once; a failed run without sources will never have any."""
        if self._found or now < self._find_at:
            return
        try:
            found, self._refusal = sources.open(self.query), ""
        except SourceError as error:
            self._refusal, self._find_at = str(error), now + retry
            return
        self._found = found is not None or not self.query.alive
        self.sources = {index: PolledSource(source) for index, source in (found or {}).items()}

    def note_trouble(self) -> None:
        """Log once when a source does not answer; log again only after all have answered."""
        if self.trouble and not self._logged:
            name = self.query.label
            log.warning("querypulse: cannot ask the sources of %s: %s", name, self.trouble)
        self._logged = bool(self.trouble)

    def close(self) -> None:
        """Close all sources."""
        for one in self.sources.values():
            one.source.close()
