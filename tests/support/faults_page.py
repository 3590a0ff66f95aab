"""The page ``docs/faults.md``, from the results of the last runs; ``make faults`` writes it."""

from __future__ import annotations

import sys
from itertools import groupby

from support.faults import Fault, Result, marked, read

HEAD = """\
# Faults

Each row is a fault that a test makes happen, and what held. `make test` and `make soak` run them and keep the results; `make faults`
writes this page from them, so a row whose test fails or did not run is missing here. Figures are of the last run.
"""


def page() -> str:
    results = read()
    rows = [(fault, test, results[test]) for test, fault in marked().items() if test in results]
    parts = [HEAD]
    for subject, of_subject in groupby(sorted(rows), key=lambda row: row[0].subject):
        lines = [line(*row) for row in of_subject]
        head = ["| what is done | what holds | measured | test |", "|---|---|---|---|"]
        parts.append("\n".join([f"## {subject}", "", *head, *lines, ""]))
    return "\n".join(parts)


def line(fault: Fault, test: str, result: Result) -> str:
    cases = f" ({result.cases} cases)" if result.cases > 1 else ""
    return f"{beginning(fault)} {result.figures} | {link(test)}{cases} |"


def beginning(fault: Fault) -> str:
    """What does not depend on a run."""
    return f"| {fault.done} | {fault.held} |"


def link(test: str) -> str:
    path, _, name = test.partition("::")
    return f"[`{name}`](../{path})"


if __name__ == "__main__":
    sys.stdout.write(page())
