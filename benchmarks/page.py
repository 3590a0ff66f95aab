"""Puts the last table of ``make bench``, and what it ran on, into ``docs/benchmarks.md``."""

import json
import re
from pathlib import Path

from .common.result import FOLDER, Row, sections

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
MARKED = re.compile(r"(<!-- the last table -->\n).*(<!-- end of it -->)", re.DOTALL)


def main() -> None:
    """Replace the text between the marks."""
    ran = json.loads((FOLDER / "machine.json").read_text())
    names = sorted(file.parent.name for file in HERE.glob("*/__main__.py"))
    text = [
        f"{ran.pop('day')}, {ran.pop('seconds')} s, "
        + ", ".join(f"{name} {value}" for name, value in ran.items())
        + "."
    ]
    for title, rows in sections(names):
        text += ["", f"### {title}", "", "| | measured | target | |", "|---|---|---|---|"]
        text += [_line(row) for row in rows]
    body = "\n".join(text)
    PAGE.write_text(MARKED.sub(lambda mark: f"{mark[1]}{body}\n{mark[2]}", PAGE.read_text()))


def _line(row: Row) -> str:
    outcome = {None: "", True: "met", False: "**missed**"}[row.reached]
    return f"| {row.question} | {row.measured} | {row.target} | {outcome} |"


if __name__ == "__main__":
    main()
