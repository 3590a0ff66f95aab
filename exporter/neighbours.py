"""One query in the graph of queries, for all readers. Pure."""

from __future__ import annotations

from .row import QueryRow

MAX_NEIGHBOURS = 50


def upstream(row: QueryRow) -> tuple[str, ...]:
    """The queries that write what it reads, at most ``MAX_NEIGHBOURS``."""
    return row.published.flow.upstream.get(row.label, ())[:MAX_NEIGHBOURS]


def downstream(row: QueryRow) -> tuple[str, ...]:
    """The queries that read what it writes, at most ``MAX_NEIGHBOURS``."""
    return row.published.flow.downstream.get(row.label, ())[:MAX_NEIGHBOURS]


def end_to_end_age_seconds(row: QueryRow) -> float | None:
    """The age of the newest data that has passed from the first sources into its table."""
    passed = row.published.passed.get(row.label)
    return None if passed is None else max(0.0, row.published.snapshot.at - passed)
