"""Replays one application: reads its files line by line and evaluates their events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ..alerting.policy import Policy
from .applications import Application
from .changes import Change, Replayed, Stall, longest
from .engine import ReplayEngine
from .errors import ReplayError
from .lines import read_lines
from .recording import Began, Entry, Reader, Stopped


class Replay:
    """One application, to be replayed once; ``app_name`` overrides its name."""

    def __init__(self, application: Application, policy: Policy, app_name: str | None) -> None:
        self._application = application
        self._policy = policy
        self._app_name = app_name
        self._app = app_name or application.label
        self._reader = Reader()
        self._engine: ReplayEngine | None = None
        self._began_at: float | None = None
        self._ended_at: float | None = None
        self._events = 0
        self._opened = 0
        self._longest: Stall | None = None
        self._error: str | None = None

    def changes(self, on_read: Callable[[int], object]) -> Iterator[Change]:
        """Replay from beginning to end; ``on_read`` receives the number of bytes of each read.

        Raises:
            NotInstalledError: a file's codec needs a package that is not installed.

        """
        try:
            for file in self._application.files:
                for entry in self._reader.entries(read_lines(Path(file), on_read)):
                    yield from self._take(entry)
        except ReplayError as error:
            self._error = str(error)
        if self._engine is not None:
            yield from self._engine.wait(self._reader.newest_time() or self._engine.now)
            yield from self._finish(self._engine)

    @property
    def replayed(self) -> Replayed:
        """The counts and times of the replayed application."""
        reader = self._reader
        error = self._error
        if error is None and reader.unread and not reader.understood:
            error = f"{self._application.path}: neither an event log nor recorded events"
        return Replayed(
            app=self._app,
            path=self._application.path,
            events=self._events,
            unread=reader.unread,
            began_at=self._began_at,
            ended_at=self._ended_at,
            opened=self._opened,
            longest_stall=self._longest,
            error=error,
        )

    def _take(self, entry: Entry) -> list[Change]:
        engine = self._engine
        if isinstance(entry, Began):
            changes = self._finish(engine) if engine is not None else []
            self._app = self._app_name or entry.name or self._app
            self._engine = None if entry.at is None else self._start(entry.at)
            return changes
        at = entry.at if entry.at is not None or engine is None else engine.now
        if at is None:
            return []
        engine = engine or self._start(at)
        if isinstance(entry, Stopped):
            return engine.stop(at)
        self._events += 1
        return engine.apply(entry.event, at)

    def _start(self, at: float) -> ReplayEngine:
        """Start an evaluation; a file with several applications has several."""
        self._engine = ReplayEngine(self._policy, self._app, at)
        self._began_at = min(at, self._began_at or at)
        return self._engine

    def _finish(self, engine: ReplayEngine) -> list[Change]:
        """Evaluate the last events, and add up the totals."""
        changes = engine.evaluate()
        self._ended_at = max(engine.now, self._ended_at or engine.now)
        self._opened += engine.opened
        self._longest = longest((self._longest, engine.longest_stall))
        return changes
