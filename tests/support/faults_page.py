"""The page ``docs/faults.md``, from the results of the last runs; ``make dashboards`` writes it."""

from __future__ import annotations

import sys
from itertools import groupby

from support.faults import Row, read

HEAD = """\
# Faults

Each row is a fault that a test makes happen, and what held. `make test` and `make soak` run them and keep the results; `make faults`
writes this page from them, so a row whose test fails or did not run is missing here. Figures are of the last run.
"""


def page() -> str:
    parts = [HEAD]
    rows = sorted(read().items(), key=lambda item: (item[1].subject, item[0]))
    for subject, of_subject in groupby(rows, key=lambda item: item[1].subject):
        lines = [line(test, row) for test, row in of_subject]
        head = ["| what is done | what holds | measured | test |", "|---|---|---|---|"]
        parts.append("\n".join([f"## {subject}", "", *head, *lines, ""]))
    return "\n".join(parts)


def line(test: str, row: Row) -> str:
    path, _, name = test.partition("::")
    cases = f" ({row.cases} cases)" if row.cases > 1 else ""
    return f"| {row.done} | {row.held} | {row.figures} | [`{name}`](../{path}){cases} |"


if __name__ == "__main__":
    sys.stdout.write(page())
