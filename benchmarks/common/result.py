"""A row of the table: what was asked, what came out, what was to be reached."""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parents[2] / "build" / "benchmarks"
WIDTHS = (46, 34, 22)


class Row(NamedTuple):
    """``reached`` is None where nothing was promised."""

    question: str
    measured: str
    target: str = ""
    reached: bool | None = None

    @property
    def verdict(self) -> str:
        """Whether what was promised was reached."""
        return {None: "", True: "reached", False: "SHORT OF IT"}[self.reached]


def at_most(question: str, value: float, limit: float, unit: str = "") -> Row:
    """A row whose figure must not be larger."""
    return Row(question, f"{value:,.3g}{unit}", f"at most {limit:,g}{unit}", value <= limit)


def at_least(question: str, value: float, limit: float, unit: str = "") -> Row:
    """A row whose figure must not be smaller."""
    return Row(question, f"{value:,.3g}{unit}", f"at least {limit:,g}{unit}", value >= limit)


def write(name: str, rows: Sequence[Row], samples: Any) -> None:
    """Keep the rows, with every sample, where ``make bench`` finds them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    result = {
        "machine": machine(),
        "rows": [row._asdict() for row in rows],
        "samples": samples,
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(result))


def read(name: str) -> list[Row]:
    """The rows of a benchmark that has run."""
    path = FOLDER / f"{name}.json"
    return [Row(**row) for row in json.loads(path.read_text())["rows"]] if path.exists() else []


def lines(title: str, rows: Sequence[Row]) -> list[str]:
    """Rows as a small table in text."""
    cells = [(row.question, row.measured, row.target) for row in rows]
    body = [
        "  "
        + "".join(f"{text:<{width}}" for text, width in zip(texts, WIDTHS, strict=True))
        + row.verdict
        for texts, row in zip(cells, rows, strict=True)
    ]
    return ["", title, *body]


def machine() -> dict[str, str]:
    """What ran it."""
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "load": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }
