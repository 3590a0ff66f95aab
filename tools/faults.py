"""``python -m tools.faults RESULTS...``: print ``docs/internals/faults.md`` from JUnit files.

A test names its row with ``@pytest.mark.fault(subject, done, held)``; the fixture ``measured`` adds
a figure. A fault holds if every case that ran passed.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
MARK = "pytest.mark.fault("
HEAD = """\
# Faults

Each row is a fault that a test makes happen, and what held when it last ran. `make faults` writes
this page from the results of the last `make test-all`, `make nightly` and `make soak`. A fault does
not hold if one case of its test failed.

{runs}
"""
COLUMNS = "| what is done | what holds | measured | test |\n|---|---|---|---|"
NOT_RUN = "Not run here. Expected"
FAILED = "**Does not hold yet**"


class Fault(NamedTuple):
    """What was done to whom, and what holds."""

    subject: str
    done: str
    held: str


class Case(NamedTuple):
    """One case of a test in one run; it may have run on several Sparks."""

    name: str
    passed: bool
    figure: str


def marked() -> Iterator[tuple[Fault, str]]:
    """Yield each fault with the test that makes it happen, as ``path::name``."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        functions = ast.parse(text).body if MARK in text else []
        for function in functions:
            if isinstance(function, ast.FunctionDef):
                test = f"{path.relative_to(ROOT).as_posix()}::{function.name}"
                yield from ((fault, test) for fault in faults_of(function))


def faults_of(function: ast.FunctionDef) -> Iterator[Fault]:
    """Yield what the marks of a test say."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator).startswith(MARK):
            yield Fault(*map(ast.literal_eval, decorator.args))


def cases(files: Iterable[Path]) -> dict[str, list[Case]]:
    """The cases of each test that ran, from pytest's JUnit files."""
    ran: defaultdict[str, list[Case]] = defaultdict(list)
    for file in files:
        for case in ET.parse(file).iter("testcase"):  # noqa: S314 - written by pytest, here
            name = str(case.get("name")).partition("@")[0]
            module = str(case.get("classname")).replace(".", "/")
            test = f"{module}.py::{name.partition('[')[0]}"
            properties = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
            outcomes = {child.tag for child in case}
            if "skipped" not in outcomes:
                passed = not outcomes & {"failure", "error"}
                ran[test].append(Case(name, passed, properties.get("measured") or ""))
    return ran


def page(faults: Iterable[tuple[Fault, str]], ran: Mapping[str, list[Case]], runs: str) -> str:
    """The whole page: a row for each fault, in the order of its texts."""
    parts = [HEAD.format(runs=runs)]
    for subject, rows in groupby(sorted(faults), key=lambda row: row[0].subject):
        lines = [line(fault, test, ran.get(test, [])) for fault, test in rows]
        parts.append("\n".join([f"## {subject}", "", COLUMNS, *lines, ""]))
    return "\n".join(parts)


def line(fault: Fault, test: str, ran: list[Case]) -> str:
    """One row."""
    path, _, name = test.partition("::")
    count = len({case.name for case in ran})
    link = f"[`{name}`](../../{path})" + (f" ({count} cases)" if count > 1 else "")
    holds = fault.held
    if not ran:
        holds = f"{NOT_RUN}: {fault.held}"
    elif not all(case.passed for case in ran):
        holds = f"{FAILED}: {fault.held}"
    figures = next((case.figure for case in ran if case.figure), "")
    return f"| {fault.done} | {holds} | {figures} | {link} |"


def described(files: Iterable[Path]) -> str:
    """When the results were found."""
    # Written by pytest, here.
    suites = (suite for file in files for suite in ET.parse(file).iter("testsuite"))  # noqa: S314
    dates = sorted({suite.get("timestamp", "")[:10] for suite in suites})
    if not dates:
        return "Nothing has run."
    return f"Runs of {dates[0]}." if len(dates) == 1 else f"Runs from {dates[0]} to {dates[-1]}."


def main() -> None:
    """Print the page."""
    files = [Path(name) for name in sys.argv[1:]]
    sys.stdout.write(page(marked(), cases(files), described(files)))


if __name__ == "__main__":
    main()
