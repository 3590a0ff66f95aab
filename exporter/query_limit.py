"""Which queries have series of their own: a driver may give each run a new name. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .families import Family
from .row import QueryRow

MAX_QUERIES = 1000
"""Each query has about 75 series, so a scrape stays below 100,000 lines."""


def limited(rows: Sequence[QueryRow]) -> Sequence[QueryRow]:
    """At most ``MAX_QUERIES`` rows: expected queries first, then those that run, oldest first."""
    if len(rows) <= MAX_QUERIES:
        return rows
    return sorted(rows, key=_rank)[:MAX_QUERIES]


def overflow(app: str, rows: Sequence[QueryRow]) -> Family:
    """How many of all queries have no series; their alerts have."""
    family = Family(
        "querypulse_queries_without_series",
        f"Queries beyond the first {MAX_QUERIES}: only /status and their alerts show them.",
        ("app",),
    )
    family.add((app,), max(0, len(rows) - MAX_QUERIES))
    return family


def _rank(row: QueryRow) -> int:
    if row.is_expected:
        return 0
    return 1 if row.query is not None and row.query.alive else 2
