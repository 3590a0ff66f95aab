"""Rows of ``docs/faults.md``: which fault a test makes happen, and what held in the last run.

A test names its row with ``@pytest.mark.fault(subject, done, held)``; the fixture ``measured`` adds
figures. Each run keeps the tests that passed in ``build/faults.json``, and drops those that did not.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from support.repository import ROOT

RESULTS = ROOT / "build" / "faults.json"
FAULT, MEASURED = "fault", "measured"
MARK = "pytest.mark.fault("


class Fault(NamedTuple):
    """What was done to whom, and what holds."""

    subject: str
    done: str
    held: str


class Result(NamedTuple):
    """In how many cases it held, and the figures of the last one."""

    cases: int = 0
    figures: str = ""


class Results:
    """The results of one run by test; None for a test that did not pass in each case."""

    def __init__(self) -> None:
        self._results: dict[str, Result | None] = {}

    def add(self, report) -> None:
        """Add the report of one phase of one test."""
        said = dict(report.user_properties)
        if FAULT not in said or (report.when != "call" and report.passed):
            return
        test = report.nodeid.partition("@")[0].partition("[")[0]
        known = self._results.get(test, Result())
        figures = said.get(MEASURED, "")
        if report.passed and known is not None:
            self._results[test] = Result(known.cases + 1, figures or known.figures)
        else:
            self._results[test] = None

    def write(self) -> None:
        """Replace the kept results of the tests that ran."""
        if not self._results:
            return
        RESULTS.parent.mkdir(exist_ok=True)
        results = read() | self._results
        kept = {test: result for test, result in sorted(results.items()) if result is not None}
        RESULTS.write_text(json.dumps(kept, indent=1), encoding="utf-8")


def read() -> dict[str, Result]:
    """The kept results by test."""
    if not RESULTS.exists():
        return {}
    kept = json.loads(RESULTS.read_text("utf-8"))
    # Ignore what an older version has written.
    fields = len(Result._fields)
    return {test: Result(*result) for test, result in kept.items() if len(result) == fields}


def marked() -> dict[str, Fault]:
    """The fault of each test that names one."""
    return {
        f"{path.relative_to(ROOT).as_posix()}::{test}": fault
        for path in (ROOT / "tests").rglob("test_*.py")
        for test, fault in _in_file(path)
    }


def _in_file(path: Path) -> Iterator[tuple[str, Fault]]:
    text = path.read_text("utf-8")
    for node in ast.parse(text).body if MARK in text else ():
        for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            if isinstance(decorator, ast.Call) and ast.unparse(decorator).startswith(MARK):
                yield node.name, Fault(*map(ast.literal_eval, decorator.args))
