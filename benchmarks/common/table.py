"""All benchmarks that have run, as one table in sections."""

from collections.abc import Iterable, Iterator
from importlib import import_module

from .result import Row, read


def sections(names: Iterable[str]) -> Iterator[tuple[str, list[Row]]]:
    """The question of each benchmark, as its package asks it, and its rows."""
    for name in names:
        asked = import_module(f"benchmarks.{name}").__doc__ or name
        rows = read(name)
        if rows:
            yield asked.strip().rstrip("."), rows
