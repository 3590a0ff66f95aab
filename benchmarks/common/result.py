"""A row of the table: what was asked, what was measured and its target; all rows in sections."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parents[2] / "build" / "benchmarks"
WIDTHS = (54, 34, 22)


class Row(NamedTuple):
    """``reached`` is None without a target."""

    question: str
    measured: str
    target: str = ""
    reached: bool | None = None

    @property
    def outcome(self) -> str:
        """Whether the target was met; empty without a target."""
        return {None: "", True: "met", False: "MISSED"}[self.reached]


def at_most(question: str, value: float, limit: float, unit: str = "") -> Row:
    """A row whose value must not be above ``limit``."""
    return Row(question, f"{short(value)}{unit}", f"at most {limit:,g}{unit}", value <= limit)


def at_least(question: str, value: float, limit: float, unit: str = "") -> Row:
    """A row whose value must not be below ``limit``."""
    return Row(question, f"{short(value)}{unit}", f"at least {limit:,g}{unit}", value >= limit)


def short(value: float) -> str:
    """Three digits that matter: "0.283", "28.3", "28,300"."""
    if abs(value) < 1000:
        return f"{value:.3g}"
    return f"{float(f'{value:.3g}'):,.0f}"


def percentile(samples: Sequence[float], percent: int) -> float:
    """The nearest rank: a sample that was seen, the largest where there are few."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def write(name: str, rows: Sequence[Row], samples: Any) -> None:
    """Keep the rows, with every sample, where ``make bench`` finds them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    result = {"rows": [row._asdict() for row in rows], "samples": samples}
    _file(name).write_text(json.dumps(result))


def read(name: str) -> list[Row]:
    """The rows of a benchmark that has run; none where it has not."""
    path = _file(name)
    return [Row(**row) for row in json.loads(path.read_text())["rows"]] if path.exists() else []


def forget(name: str) -> None:
    """Remove what an earlier run has left."""
    _file(name).unlink(missing_ok=True)


def _file(name: str) -> Path:
    return FOLDER / f"{name}.json"


def lines(title: str, rows: Sequence[Row]) -> list[str]:
    """Rows as a small table in text."""
    cells = [(row.question, row.measured, row.target) for row in rows]
    body = [
        "  "
        + "".join(f"{text:<{width}}" for text, width in zip(texts, WIDTHS, strict=True))
        + row.outcome
        for texts, row in zip(cells, rows, strict=True)
    ]
    return ["", title, *body]


def sections(names: Iterable[str]) -> Iterator[tuple[str, list[Row]]]:
    """The question of each benchmark, as its package asks it, and its rows."""
    for name in names:
        asked = import_module(f"benchmarks.{name}").__doc__ or name
        rows = read(name)
        if rows:
            yield asked.strip().rstrip("."), rows
