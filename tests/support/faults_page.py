"""The page ``docs/faults.md``, from the results of the last runs; ``make test`` and ``make soak`` write it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from itertools import groupby

from support.faults import Fault, Result, marked, read

HEAD = """\
# Faults

Each row is a fault that a test makes happen, and what held when it last ran. `make test` and `make soak` write this page.
A fault does not hold if one case of its test failed.

{runs}
"""
COLUMNS = "| what is done | what holds | measured | test |\n|---|---|---|---|"
NOT_RUN, FAILED = "Not run here. Expected", "**Does not hold yet**"


def page(faults: Mapping[str, Fault], results: Mapping[str, Result]) -> str:
    """The whole page: a row for each fault, in the order of its texts."""
    parts = [HEAD.format(runs=runs([results[test] for test in faults if test in results]))]
    rows = sorted((fault, test) for test, fault in faults.items())
    for subject, of_subject in groupby(rows, key=lambda row: row[0].subject):
        lines = [line(fault, test, results.get(test)) for fault, test in of_subject]
        parts.append("\n".join([f"## {subject}", "", COLUMNS, *lines, ""]))
    return "\n".join(parts)


def runs(results: Iterable[Result]) -> str:
    """When the results were found, and on what."""
    found = [result.run for result in results]
    if not found:
        return "Nothing has run."
    dates = sorted({run.date for run in found})
    when = f"from {dates[0]} to {dates[-1]}" if len(dates) > 1 else f"of {dates[0]}"
    spark = ", ".join(sorted({run.spark for run in found}))
    python = ", ".join(sorted({run.python for run in found}))
    return f"Runs {when}, on Spark {spark} and Python {python}."


def line(fault: Fault, test: str, result: Result | None) -> str:
    """One row."""
    if result is None:
        return f"| {fault.done} | {NOT_RUN}: {fault.held} |  | {link(test)} |"
    if not result.holds:
        return f"| {fault.done} | {FAILED}: {fault.held} |  | {link(test)} |"
    return f"| {fault.done} | {fault.held} | {result.figures} | {link(test)}{_cases(result)} |"


def link(test: str) -> str:
    path, _, name = test.partition("::")
    return f"[`{name}`](../{path})"


def _cases(result: Result) -> str:
    if result.passed < result.cases:
        return f" ({result.passed} of {result.cases} cases ran)"
    return f" ({result.cases} cases)" if result.cases > 1 else ""


if __name__ == "__main__":
    sys.stdout.write(page(marked(), read()))
