"""Which checkpoints are read: those whose logs decide something. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .probing import ProbedRun, RunFacts


class ChosenRun(msgspec.Struct, frozen=True):
    """A run whose logs are read; ``since`` is when it came to its present batch."""

    facts: RunFacts
    since: float


class _Batch(msgspec.Struct, frozen=True):
    """What a run does, as far as the choice depends on it, and since when."""

    busy: bool
    batch_id: int | None
    since: float
    last_seconds: float
    """How long the run was busy before."""


class LogChoice:
    """Chooses runs from each probe report; times are monotonic seconds.

    Continuous sends no events, and async progress tracking reports a commit before it is
    written: only the log shows their commits. Of an ordinary run, events and the grown batch id
    show every commit; its log adds nothing until an alert for a stall is near. Then it shows
    whether the batch was committed, and it is the only signal left of a run whose batch id Spark
    does not give. So it is read once the probe polls the run closely, and its batch takes longer
    than ``patience_seconds`` and than its last one.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._batches: dict[str, _Batch] = {}

    def choose(self, runs: Iterable[ProbedRun], now: float) -> list[ChosenRun]:
        """Those of the runs whose logs are to be read."""
        known = [run for run in runs if run.active and run.facts.checkpoint]
        self._batches = {run.facts.run_id: self._follow(run, now) for run in known}
        return [
            ChosenRun(run.facts, self._batches[run.facts.run_id].since)
            for run in known
            if _needs_its_log(run) or self._may_stall(run, now)
        ]

    def _follow(self, run: ProbedRun, now: float) -> _Batch:
        # An idle run under async progress tracking is busy at every trigger, and that is no news.
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
