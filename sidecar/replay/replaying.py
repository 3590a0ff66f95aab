"""Replays one application: its files line by line, what they say, and what is judged of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ...alerting.policy import Policy
from .applications import Application
from .changes import Change, Replayed, Stall, longest
from .engine import ReplayEngine
from .errors import ReplayError
from .lines import read_lines
from .recording import Began, Reader, Said, Stopped


class Replay:
    """One application, to be judged once; ``app_name`` given, it goes by that name."""

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
        """Judge from beginning to end; ``on_read`` is told of each number of bytes read.

        Raises:
            NotInstalledError: a file's codec needs a package that is not there.

        """
        try:
            for file in self._application.files:
                for said in self._reader.said(read_lines(Path(file), on_read)):
                    yield from self._take(said)
        except ReplayError as error:
            self._error = str(error)
        if self._engine is not None:
            yield from self._engine.wait(self._reader.newest_time or self._engine.now)
            yield from self._adjourn(self._engine)

    @property
    def replayed(self) -> Replayed:
        """What there was to judge."""
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

    def _take(self, said: Said) -> list[Change]:
        engine = self._engine
        if isinstance(said, Began):
            changes = self._adjourn(engine) if engine is not None else []
            self._app = self._app_name or said.name or self._app
            self._engine = None if said.at is None else self._convene(said.at)
            return changes
        at = said.at if said.at is not None or engine is None else engine.now
        if at is None:
            return []
        engine = engine or self._convene(at)
        if isinstance(said, Stopped):
            return engine.stop(at)
        self._events += 1
        return engine.apply(said.event, at)

    def _convene(self, at: float) -> ReplayEngine:
        """Begin to judge; anew where one file holds several applications."""
        self._engine = ReplayEngine(self._policy, self._app, at)
        self._began_at = min(at, self._began_at or at)
        return self._engine

    def _adjourn(self, engine: ReplayEngine) -> list[Change]:
        """Judge what was heard last, and keep the sums."""
        changes = engine.evaluate()
        self._ended_at = max(engine.now, self._ended_at or engine.now)
        self._opened += engine.opened
        self._longest = longest((self._longest, engine.longest_stall))
        return changes
