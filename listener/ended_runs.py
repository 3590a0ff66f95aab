"""Runs that ended lately, so that a report that nobody reads costs no death its reason."""

from __future__ import annotations

from .probing import ProbedRun

KEEP_REPORTED = 256


class EndedRuns:
    """Remembers each run until it was reported, and the newest of those reported."""

    def __init__(self) -> None:
        self._runs: dict[str, ProbedRun] = {}
        self.has_news = False
        """Whether a run was added since the last report."""

    def add(self, run: ProbedRun) -> None:
        """Take in the last sight of a run."""
        self._runs[run.facts.run_id] = run
        self.has_news = True

    def report(self) -> tuple[ProbedRun, ...]:
        """All that are remembered, the oldest first."""
        self.has_news = False
        reported = tuple(self._runs.values())
        for run in reported[:-KEEP_REPORTED]:
            del self._runs[run.facts.run_id]
        return reported
