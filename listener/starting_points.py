"""Reads the starting point of each run once, from two listings of its checkpoint."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from .checkpoint import COMMITS, OFFSETS, Checkpoint, StorageError
from .labels import base_label
from .probing import ProbedRun, RunFacts
from .starting_point import StartingPoint, starting_point

log = logging.getLogger("querypulse")

CLOCK_SET_SECONDS = 5.0
"""A larger step of the wall clock means that it was set."""


class ReadableCheckpoint(Checkpoint, Protocol):
    """A checkpoint on some storage that also reports when its files were written."""

    def times(self, log: str) -> dict[int, float | None]:
        """All batch ids in a log with the Unix seconds of their files, if known.

        Raises:
            StorageError: the storage did not answer.

        """
        ...


class StartingPoints:
    """Starting points by run id; used by one thread, but any thread may call ``lacks``.

    A run that has ended is read too, because it may have failed before the first reading. If the
    storage refuses, it is not read again for that run, which has no starting point. Runs that do
    not plan a batch before they run it are left out: ``continuous``, ``realTime``, and async
    progress tracking, which writes its logs only now and then.
    """

    def __init__(
        self,
        open_checkpoint: Callable[[str, str], ReadableCheckpoint],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._open = open_checkpoint
        self._wall = wall
        self._ahead: float | None = None
        self._known: dict[str, StartingPoint | None] = {}

    def lacks(self, runs: Iterable[ProbedRun]) -> bool:
        """Whether one of these has not been read."""
        return any(one.facts.run_id not in self._known for one in runs if _is_read(one.facts))

    def read(self, runs: Iterable[ProbedRun], now: float) -> dict[str, StartingPoint]:
        """The starting points of these runs by run id, at monotonic ``now``; drops all others."""
        if self._ahead is None:
            self._ahead = self._wall() - now
        before, self._known = self._known, {}
        for one in runs:
            run_id = one.facts.run_id
            if _is_read(one.facts):
                known = run_id in before
                self._known[run_id] = before[run_id] if known else self._point(one.facts, now)
        return {run_id: point for run_id, point in self._known.items() if point is not None}

    def _point(self, facts: RunFacts, now: float) -> StartingPoint | None:
        try:
            checkpoint = self._open(facts.checkpoint, facts.query_id)
            # Offsets first: a batch planned in between never seems unfinished, see CheckpointLogs.
            offsets, commits = checkpoint.times(OFFSETS), checkpoint.times(COMMITS)
        except StorageError as error:
            name = base_label(facts.name, facts.query_id)
            log.info("querypulse: the age of the checkpoint of %s is not known: %s", name, error)
            return None
        return starting_point(offsets, commits, now, self._wall_unless_set(now))

    def _wall_unless_set(self, now: float) -> float | None:
        """Unix seconds now; None if the wall clock was set since the first reading."""
        wall, ahead = self._wall(), self._ahead
        is_set = ahead is not None and abs(wall - now - ahead) > CLOCK_SET_SECONDS
        return None if is_set else wall


def _is_read(facts: RunFacts) -> bool:
    plans_first = not (facts.trigger.is_continuous or facts.trigger.is_real_time)
    return bool(facts.checkpoint) and plans_first and not facts.async_progress
