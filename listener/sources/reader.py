"""The fourth witness: asks the systems that queries read from, in its own thread's steps.

A broker may be slow, dead or closed to us, so nobody waits for this thread; who reads ``latest``
sees the age of each look.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from ..probing import Context
from ..query import Outcome, Query
from ..snapshot import Snapshot
from .report import SourceLook, SourceReport

log = logging.getLogger("querypulse")

MEET_EVERY_SECONDS = 1.0
MAX_RUNS = 100
RETRY_INTERVALS = 2
"""A source that does not answer is left alone for this many intervals."""


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

    def look(self) -> SourceLook:
        """Ask; takes seconds at most. Raises SourceError."""
        ...

    def close(self) -> None:
        """Let go of connections; never raises."""
        ...


class Sources(Protocol):
    """Finds the sources of a run."""

    def open(self, query: Query) -> Mapping[int, Source] | None:
        """By index; None where they cannot be told now. Raises SourceError."""
        ...


class SourceReader:
    """Meets new runs every second and asks each source every ``interval_seconds``.

    Used by one thread. A system that is silent is named in the report and left alone for a
    while, so that its timeouts do not use up the time of the others.
    """

    def __init__(
        self,
        sources: Sources,
        latest_snapshot: Callable[[], Snapshot],
        on_report: Callable[[], None],
        *,
        interval_seconds: float,
        meet_every_seconds: float = MEET_EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.latest: SourceReport | None = None
        self._sources = sources
        self._latest_snapshot = latest_snapshot
        self._on_report = on_report
        self._interval = interval_seconds
        self._retry = RETRY_INTERVALS * interval_seconds
        self._meet_every = min(meet_every_seconds, interval_seconds)
        self._clock = clock
        self._runs: dict[str, _Run] = {}
        self._silent: dict[str, tuple[float, str]] = {}
        self._stopping = threading.Event()

    def step(self) -> None:
        """Ask who is due, then rest."""
        try:
            self._choose()
            for run in self._runs.values():
                self._ask(run)
            self._report()
        finally:
            self._stopping.wait(self._meet_every)

    def stop(self) -> None:
        """Ask nobody any more, and do not rest."""
        self._stopping.set()

    def close(self) -> None:
        """Let go of all sources; by the thread that asks."""
        for run in self._runs.values():
            run.close()
        self._runs.clear()

    def _choose(self) -> None:
        """Keep the runs to be asked now, and let go of all others."""
        chosen = {query.run_id: query for query in runs_to_ask(self._latest_snapshot())}
        for run_id in [run_id for run_id in self._runs if run_id not in chosen]:
            self._runs.pop(run_id).close()
        for run_id, query in chosen.items():
            self._runs.setdefault(run_id, _Run()).query = query

    def _ask(self, run: _Run) -> None:
        """Ask a run's sources that are due, those of silent systems excepted."""
        run.meet(self._sources, self._clock(), self._retry)
        for one in run.asked.values():
            now = self._clock()
            if self._stopping.is_set() or now < one.due_at:
                continue
            retry_at, reason = self._silent.get(one.source.address, (now, ""))
            if now < retry_at:
                one.trouble, one.due_at = reason, retry_at
                continue
            one.due_at = now + self._interval
            self._ask_source(one)
        run.note_trouble()

    def _ask_source(self, one: _Asked) -> None:
        try:
            one.last, one.trouble = one.source.look(), ""
        except SourceError as error:
            one.trouble, one.due_at = str(error), self._clock() + self._retry
            if isinstance(error, SourceSilentError):
                self._silent[one.source.address] = one.due_at, one.trouble

    def _report(self) -> None:
        report = SourceReport(
            at=self._clock(),
            looks={key: looks for key, run in self._runs.items() if (looks := run.looks)},
            unreadable={key: reason for key, run in self._runs.items() if (reason := run.trouble)},
        )
        known = self.latest or SourceReport(report.at)
        if (report.looks, report.unreadable) != (known.looks, known.unreadable):
            self.latest = report
            self._on_report()


class _Asked:
    """One source: when it is due, what it said last, and what is wrong with it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.due_at = 0.0
        self.last: SourceLook | None = None
        self.trouble = ""


class _Run:
    """The sources of one run, once they are known."""

    query: Query

    def __init__(self) -> None:
        self.asked: dict[int, _Asked] = {}
        self._met = False
        self._meet_at = 0.0
        self._refusal = ""
        self._logged = False

    @property
    def looks(self) -> dict[int, SourceLook]:
        """The newest look at each source."""
        return {index: one.last for index, one in self.asked.items() if one.last is not None}

    @property
    def trouble(self) -> str:
        """Why not all sources have answered; empty when they have."""
        troubles = [self._refusal, *(one.trouble for one in self.asked.values())]
        return "; ".join(dict.fromkeys(text for text in troubles if text))

    def meet(self, sources: Sources, now: float, retry: float) -> None:
        """Find the sources, unless that is done; a dead run that has none now never will."""
        if self._met or now < self._meet_at:
            return
        try:
            found, self._refusal = sources.open(self.query), ""
        except SourceError as error:
            self._refusal, self._meet_at = str(error), now + retry
            return
        self._met = found is not None or not self.query.alive
        self.asked = {index: _Asked(source) for index, source in (found or {}).items()}

    def note_trouble(self) -> None:
        """Log once that somebody does not answer, until all do."""
        if self.trouble and not self._logged:
            name = self.query.base_name
            log.warning("querypulse: cannot ask the sources of %s: %s", name, self.trouble)
        self._logged = bool(self.trouble)

    def close(self) -> None:
        for one in self.asked.values():
            one.source.close()


def runs_to_ask(snapshot: Snapshot) -> list[Query]:
    """The queries whose present run lives, or is dead and should not be; living ones first.

    A stopped or completed one needs no data. There are bounds to what we may cost.
    """
    if snapshot.context is not Context.RUNNING:
        return []
    wanted = [query for query in snapshot.queries if query.alive or _died(query)]
    wanted.sort(key=lambda query: (not query.alive, -(query.gone_at or 0.0)))
    return wanted[:MAX_RUNS]


def _died(query: Query) -> bool:
    return query.ended is None or query.ended.outcome is Outcome.FAILED
