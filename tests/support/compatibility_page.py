"""The page ``docs/compatibility.md``, from the JUnit results of ``make matrix``. Pure but for main."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from support.repository import ROOT

HEAD = """\
# Compatibility

querypulse runs on Spark 3.5 and newer, and on Python 3.10 and newer as far as that Spark allows. An older Spark is refused
in one sentence. `make matrix` runs the tests below on every supported Spark, and on the Pythons that are installed, and
writes this page: each figure is the number of tests that passed.

"""
NOT_RUN = "not run"


class MatrixRun(NamedTuple):
    """The results of one environment: by test file, how many tests had each outcome."""

    spark: str
    python: str
    date: str
    outcomes: Mapping[str, Counter[str]]
    failed: tuple[str, ...]


def parsed(name: str, text: str) -> MatrixRun:
    """Read a JUnit file named ``<Spark>-python<Python>.xml``.

    Raises:
        ValueError: the run was ended before its last test.

    """
    spark, _, python = name.removesuffix(".xml").partition("-python")
    root = ET.fromstring(text)
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    failed = []
    for case in root.iter("testcase"):
        if not case.get("name"):
            raise ValueError(f"{name}: the run was ended before its last test; run it again")
        file = case.get("classname", "").replace(".", "/") + ".py"
        outcome = next((child.tag for child in case if child.tag in _NOT_PASSED), "passed")
        outcomes[file][_NOT_PASSED.get(outcome, outcome)] += 1
        if _NOT_PASSED.get(outcome) == "failed":
            failed.append(f"{case.get('name')}")
    suite = next(root.iter("testsuite"))
    date = datetime.fromisoformat(suite.get("timestamp", "")).date().isoformat()
    return MatrixRun(spark, python, date, dict(outcomes), tuple(failed))


_NOT_PASSED = {"failure": "failed", "error": "failed", "skipped": "skipped"}


def page(runs: Iterable[MatrixRun], subjects: Mapping[str, str]) -> str:
    """The whole page: a column for each run, a row for each test file; ``subjects`` by file."""
    ordered = sorted(runs, key=lambda run: (_version(run.spark), _version(run.python)))
    files = sorted({file for run in ordered for file in run.outcomes})
    heads = [f"Spark {run.spark}, Python {run.python}" for run in ordered]
    lines = [_row(["", *heads]), _row(["---", *["---:"] * len(heads)])]
    lines.append(_row(["run on", *[run.date for run in ordered]]))
    for file in files:
        title = f"[{subjects.get(file, file)}](../{file})"
        lines.append(_row([title, *[_cell(run.outcomes.get(file)) for run in ordered]]))
    failures = [
        f"* Spark {run.spark}, Python {run.python}: `{test}`"
        for run in ordered
        for test in run.failed
    ]
    ends = ["", "Failed:", "", *failures] if failures else []
    return HEAD + "\n".join([*lines, *ends]) + "\n"


def _cell(outcomes: Counter[str] | None) -> str:
    if not outcomes:
        return NOT_RUN
    others = [f"{outcomes[kind]} {kind}" for kind in ("failed", "skipped") if outcomes[kind]]
    return ", ".join([str(outcomes["passed"]), *others])


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def subject(file: str) -> str:
    """The first sentence of a test file's docstring."""
    first = (ROOT / file).read_text().partition('"""')[2].partition('"""')[0]
    return " ".join(first.split("\n\n")[0].split()).rstrip(".")


def main(folder: str) -> None:
    """Print the page."""
    runs = [parsed(path.name, path.read_text()) for path in sorted(Path(folder).glob("*.xml"))]
    files = {file for run in runs for file in run.outcomes}
    sys.stdout.write(page(runs, {file: subject(file) for file in files}))


if __name__ == "__main__":
    main(sys.argv[1])
