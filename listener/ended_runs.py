"""Keeps runs that ended recently, so that a lost report does not lose why a run failed."""

from __future__ import annotations

from .probing import ProbedRun

KEEP_REPORTED = 256


class EndedRuns:
    """Keeps each run until it is reported, and the newest of the reported runs."""

    def __init__(self) -> None:
        self._runs: dict[str, ProbedRun] = {}
        self.has_news = False
        """Whether a run was added since the last report."""

    def add(self, run: ProbedRun) -> None:
        """Add the last poll of a run."""
        self._runs[run.facts.run_id] = run
        self.has_news = True

    def report(self) -> tuple[ProbedRun, ...]:
        """All runs that are kept, oldest first."""
        self.has_news = False
        runs = tuple(self._runs.values())
        for run in runs[:-KEEP_REPORTED]:
            del self._runs[run.facts.run_id]
        return runs
