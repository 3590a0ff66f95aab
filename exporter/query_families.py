"""The metric families ``spark_streaming_*``, built for every scrape. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..listener.query import BUCKETS
from .backlog_figures import BACKLOG
from .buckets import Buckets
from .families import Family, histogram
from .lag_figures import LAG
from .query_figures import FIGURES, PREFIX, SPLITS
from .row import QueryRow

LABELS = ("app", "query")


def query_families(app: str, rows: Sequence[QueryRow]) -> Iterator[Family]:
    """All families of all queries."""
    yield _info(app, rows)
    yield _failure_info(app, rows)
    for figure in FIGURES:
        family = Family(figure.name, figure.documentation, LABELS)
        for row in rows:
            family.add((app, row.label), figure.read(row))
        yield family
    for split in (*SPLITS, *BACKLOG, *LAG):
        family = Family(split.name, split.documentation, (*LABELS, split.label))
        for row in rows:
            for part, value in split.read(row).items():
                family.add((app, row.label, part), value)
        yield family
    yield _batch_duration(app, rows)


def _info(app: str, rows: Sequence[QueryRow]) -> Family:
    family = Family(f"{PREFIX}_info", "The current run of the query.", LABELS)
    for row in rows:
        if row.query is not None:
            facts = row.facts
            run = {
                "query_id": row.query.query_id,
                "run_id": row.query.run_id,
                "trigger": str(facts.trigger) if facts is not None else "",
                "sink": facts.sink if facts is not None else "",
            }
            family.add_info((app, row.label), run)
    return family


def _failure_info(app: str, rows: Sequence[QueryRow]) -> Family:
    family = Family(f"{PREFIX}_failure_info", "The query's unrecovered failure.", LABELS)
    for row in rows:
        if row.error_class is not None:
            family.add_info((app, row.label), {"error_class": row.error_class})
    return family


def _batch_duration(app: str, rows: Sequence[QueryRow]) -> Family:
    family = histogram(f"{PREFIX}_batch_duration_seconds", "How long batches took.", LABELS)
    for row in rows:
        totals = row.totals
        buckets = Buckets(BUCKETS, totals.batch_buckets, totals.batch_seconds)
        family.add_buckets((app, row.label), buckets)
    return family
