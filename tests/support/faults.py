"""Rows of ``docs/faults.md``: which fault a test makes happen, and what held in its last run.

A test names its row with ``@pytest.mark.fault(subject, done, held)``; the fixture ``measured`` adds
figures. Each run keeps its results in ``build/faults.json``. A fault holds when a run of all cases of
its test passed, and does not hold as soon as one case failed in any run. A run of some cases, or a
test that was left out, changes nothing else.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from support.repository import ROOT

RESULTS = ROOT / "build" / "faults.json"
CASES, MEASURED = "cases", "measured"
MARK = "pytest.mark.fault("


class Fault(NamedTuple):
    """What was done to whom, and what holds."""

    subject: str
    done: str
    held: str


class SuiteRun(NamedTuple):
    """When a test ran, and on what."""

    date: str
    spark: str
    python: str


class Result(NamedTuple):
    """Whether it holds, in how many cases of how many, the figures, and the run that shows it."""

    holds: bool
    passed: int
    cases: int
    figures: str
    run: SuiteRun


class Cases:
    """The cases of one test in one run."""

    def __init__(self) -> None:
        self.collected = 0
        """How many cases there are; 0 if unknown."""
        self.figures = ""
        self._outcomes: dict[str, str] = {}

    def add(self, report) -> None:
        """Add the report of one phase of one case."""
        said = dict(report.user_properties)
        self.collected = said.get(CASES, self.collected)
        self.figures = said.get(MEASURED, self.figures)
        worse = report.failed or hasattr(report, "wasxfail")
        if worse:
            self._outcomes[report.nodeid] = "failed"
        elif self._outcomes.get(report.nodeid) not in {"failed", "skipped"}:
            # The teardown of a skipped test passes.
            self._outcomes[report.nodeid] = report.outcome

    def result(self, run: SuiteRun) -> Result | None:
        """The result to keep; None if the run shows nothing about all cases."""
        outcomes = list(self._outcomes.values())
        passed = outcomes.count("passed")
        if "failed" in outcomes:
            return Result(False, passed, self.collected, "", run)
        if passed == 0 or not 0 < self.collected <= len(outcomes):
            return None
        return Result(True, passed, self.collected, self.figures, run)


class Results:
    """The results of one run by test."""

    def __init__(self, run: SuiteRun, tests: frozenset[str] | None = None) -> None:
        self._run = run
        self._tests = frozenset(marked()) if tests is None else tests
        self._cases: dict[str, Cases] = {}

    def add(self, report) -> None:
        """Add the report of one phase of one test; that of a crashed worker has no properties."""
        test = report.nodeid.partition("@")[0].partition("[")[0]
        if test in self._tests:
            self._cases.setdefault(test, Cases()).add(report)

    def write(self, path: Path = RESULTS) -> None:
        """Replace the kept results of the tests that this run says something about."""
        new = {test: cases.result(self._run) for test, cases in self._cases.items()}
        found = {test: result for test, result in new.items() if result is not None}
        if not found:
            return
        path.parent.mkdir(exist_ok=True)
        kept = sorted((read(path) | found).items())
        rows = {test: result._asdict() | {"run": result.run._asdict()} for test, result in kept}
        path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def read(path: Path = RESULTS) -> dict[str, Result]:
    """The kept results by test, without what another version has written."""
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return {
        test: Result(**row | {"run": SuiteRun(**row["run"])})
        for test, row in kept.items()
        if isinstance(row, dict) and row.keys() == set(Result._fields)
    }


@cache
def marked() -> dict[str, Fault]:
    """The fault of each test that names one."""
    return {
        f"{path.relative_to(ROOT).as_posix()}::{test}": fault
        for path in (ROOT / "tests").rglob("test_*.py")
        for test, fault in in_text(path.read_text("utf-8"))
    }


def in_text(text: str) -> Iterator[tuple[str, Fault]]:
    """Test and fault of each marked test of a file."""
    for node in ast.parse(text).body if MARK in text else ():
        for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            if isinstance(decorator, ast.Call) and ast.unparse(decorator).startswith(MARK):
                yield node.name, Fault(*map(ast.literal_eval, decorator.args))
