"""Rows of ``docs/faults.md``: which fault a test makes happen, and what held in the last run.

A test names its row with ``@pytest.mark.fault(subject, done, held)``; the fixture ``measured`` adds
figures. Each run keeps its results in ``build/faults.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).resolve().parents[2] / "build" / "faults.json"
FAULT, MEASURED = "fault", "measured"


class Row(NamedTuple):
    """What was done to whom, what held, in how many cases, and the figures of the last one."""

    subject: str
    done: str
    held: str
    cases: int = 0
    figures: str = ""


class Results:
    """The rows of one run by test; a test that failed once has none."""

    def __init__(self) -> None:
        self._rows: dict[str, Row | None] = {}

    def add(self, report) -> None:
        """Add the report of one phase of one test."""
        said = dict(report.user_properties)
        if FAULT not in said or (report.when != "call" and report.passed):
            return
        test = report.nodeid.partition("@")[0].partition("[")[0]
        known = self._rows.get(test, Row(*said[FAULT]))
        passed = report.passed and known is not None
        self._rows[test] = (
            known._replace(cases=known.cases + 1, figures=said.get(MEASURED, known.figures))
            if passed
            else None
        )

    def write(self) -> None:
        """Replace the kept rows of the tests that ran."""
        if not self._rows:
            return
        rows = read() | self._rows
        RESULTS.parent.mkdir(exist_ok=True)
        kept = {test: row for test, row in sorted(rows.items()) if row is not None}
        RESULTS.write_text(json.dumps(kept, indent=1), encoding="utf-8")


def read() -> dict[str, Row]:
    """The kept rows by test."""
    if not RESULTS.exists():
        return {}
    return {test: Row(*row) for test, row in json.loads(RESULTS.read_text("utf-8")).items()}
