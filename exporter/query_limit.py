"""Which queries have series of their own: a driver may give each run a new name. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .families import Family
from .row import QueryRow

MAX_QUERIES = 1000
"""Each query has about 75 series, besides those of its sources and topics."""


def limited(rows: Sequence[QueryRow]) -> Sequence[QueryRow]:
    """At most ``MAX_QUERIES`` rows.

    First expected queries, then those that run, oldest first, then those that should run, and last
    those that have ended as intended; of these two, the newest first.
    """
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


def _rank(row: QueryRow) -> tuple[int, float]:
    if row.is_expected:
        return 0, 0.0
    if row.query is None or row.query.gone_at is None:
        return 1, 0.0
    return 2 if row.is_needed else 3, -row.query.gone_at
