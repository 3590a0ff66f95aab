"""Metric families of the graph of queries. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .families import Family
from .neighbours import end_to_end_age_seconds, upstream
from .query_figures import PREFIX
from .row import QueryRow

MAX_SERIES = 2000
"""Further edges are only in ``/status``."""


def flow_families(app: str, rows: Sequence[QueryRow]) -> Iterator[Family]:
    """The edges between queries, and the age of the data at the end of each chain."""
    age = Family(
        f"{PREFIX}_end_to_end_age_seconds",
        "Age of the newest data that has passed from the first sources, through all queries before "
        "it, into the query's table; absent if unknown.",
        ("app", "query"),
    )
    edges = Family(
        f"{PREFIX}_upstream",
        "1 for each query whose output the query reads.",
        ("app", "query", "upstream"),
    )
    for row in rows:
        age.add((app, row.label), end_to_end_age_seconds(row))
        for writer in upstream(row)[: MAX_SERIES - len(edges.samples)]:
            edges.add((app, row.label, writer), 1.0)
    yield age
    yield edges
