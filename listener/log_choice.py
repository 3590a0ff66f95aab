"""Chooses the checkpoints to read: those whose logs affect an alert. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .probing import ProbedRun, RunFacts


class ChosenRun(msgspec.Struct, frozen=True):
    """A run whose logs are read; ``since`` is when its current batch began."""

    facts: RunFacts
    since: float


class _Batch(msgspec.Struct, frozen=True):
    """The part of a run's activity that the choice depends on, and since when."""

    busy: bool
    batch_id: int | None
    since: float
    last_seconds: float
    """How long the run was busy the time before."""


class LogChoice:
    """Chooses runs from each probe report; times are monotonic seconds.

    Events and the growing batch id show every commit of an ordinary run. Its log is needed only
    when a stall alert is near: it shows whether the batch was committed, and it is the only
    signal for a run whose batch id Spark does not report. So the log is read once the probe polls
    the run's jobs and the batch takes longer than ``patience_seconds`` and than the last batch.
    A continuous query sends no events, and async progress tracking reports a commit before it is
    written, so for these only the log shows commits, and it is always read.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._batches: dict[str, _Batch] = {}

    def choose(self, runs: Iterable[ProbedRun], now: float) -> list[ChosenRun]:
        """The runs whose logs are to be read."""
        known = [run for run in runs if run.active and run.facts.checkpoint]
        self._batches = {run.facts.run_id: self._follow(run, now) for run in known}
        return [
            ChosenRun(run.facts, self._batches[run.facts.run_id].since)
            for run in known
            if _needs_its_log(run) or self._may_stall(run, now)
        ]

    def _follow(self, run: ProbedRun, now: float) -> _Batch:
        # With async progress tracking an idle run is busy at every trigger; ignore that.
        busy = not _needs_its_log(run) and (run.planning or run.processing)
        before = self._batches.get(run.facts.run_id)
        if before is not None and (before.busy, before.batch_id) == (busy, run.batch_id):
            return before
        return _Batch(busy, run.batch_id, now, _last_seconds(before, now))

    def _may_stall(self, run: ProbedRun, now: float) -> bool:
        batch = self._batches[run.facts.run_id]
        patience = max(self._patience, batch.last_seconds)
        return run.work is not None and batch.busy and now - batch.since >= patience


def _needs_its_log(run: ProbedRun) -> bool:
    return run.facts.trigger.is_continuous or run.facts.async_progress


def _last_seconds(before: _Batch | None, now: float) -> float:
    if before is None:
        return 0.0
    return now - before.since if before.busy else before.last_seconds
