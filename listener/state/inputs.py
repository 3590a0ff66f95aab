"""When each source of a query last had rows.

Spark counts the rows of each source (``sources[].numInputRows``). A source is known by its
description, and among several of one description by its place: its index may change between runs.
"""

from __future__ import annotations

import msgspec

from ..events import Progress, SourceProgress
from ..offsets import Offsets


class SourceInput(msgspec.Struct, frozen=True, gc=False):
    """One source of a query, and its rows. Times are monotonic seconds."""

    description: str
    number: int = 0
    """Its place among the sources of this description."""
    last_at: float | None = None
    """When the current run last read rows from it, as far as known."""
    without_before: float = 0.0
    """For how many seconds the runs before it had read no rows from it when they ended."""
    counts_rows: bool = False
    """Whether rows of it were ever counted: where none are, its offsets show that it has data."""
    end: Offsets | None = None


def follow_inputs(
    inputs: tuple[SourceInput, ...], progress: Progress, at: float
) -> tuple[SourceInput, ...]:
    """Apply one executed batch, in the order of its sources."""
    before = {(source.description, source.number): source for source in inputs}
    counted = sum(source.input_rows for source in progress.sources)
    # Spark 3.5 counts none where one of several V1 sources has no new data, such as a folder.
    counts_none = not progress.input_rows and len(progress.sources) > 1
    followed = []
    numbers: dict[str, int] = {}
    for source in progress.sources:
        number = numbers.get(source.description, 0)
        numbers[source.description] = number + 1
        key = (source.description, number)
        known = before.get(key) or SourceInput(*key)
        # Where the figures do not add up, nobody knows which source had the rows.
        had_rows = counted != progress.input_rows or _had_data(
            known, source, counts_none=counts_none
        )
        followed.append(
            SourceInput(
                *key,
                last_at=at if had_rows else known.last_at,
                without_before=known.without_before,
                counts_rows=known.counts_rows or source.input_rows > 0,
                end=source.end,
            )
        )
    return tuple(followed)


def _had_data(known: SourceInput, source: SourceProgress, *, counts_none: bool) -> bool:
    if source.input_rows or (known.counts_rows and not counts_none):
        return source.input_rows > 0
    return known.end is not None and source.end != known.end


def had_input(inputs: tuple[SourceInput, ...], progress: Progress, at: float) -> bool:
    """Whether the batch that was just applied had rows, as far as known."""
    if progress.input_rows > 0:
        return True
    return len(inputs) > 1 and any(source.last_at == at for source in inputs)
