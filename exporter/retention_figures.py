"""How much of each topic's retention the unread data has used. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ..listener.sources.report import topic_of
from .families import Family
from .row import QueryRow

LABELS = ("app", "query", "source", "topic")


class TopicRetention(msgspec.Struct, frozen=True):
    """One topic of one source: the figures of its worst partitions."""

    used_ratio: float
    left_seconds: float | None


def retention_families(app: str, rows: Sequence[QueryRow]) -> Iterator[Family]:
    """Both families, for all topics with known figures."""
    used = Family(
        "spark_streaming_topic_retention_used_ratio",
        "How much of the retention the unread data has used, in the worst partition: 0 if nothing "
        "is unread, 1 if unread data is about to be deleted or was deleted.",
        LABELS,
    )
    left = Family(
        "spark_streaming_topic_retention_left_seconds",
        "The least time until unread data is deleted if nothing is read, in the worst partition; "
        "absent if unknown.",
        LABELS,
    )
    for row in rows:
        for (source, topic), figures in _by_topic(row).items():
            used.add((app, row.label, source, topic), figures.used_ratio)
            left.add((app, row.label, source, topic), figures.left_seconds)
    yield used
    yield left


def _by_topic(row: QueryRow) -> dict[tuple[str, str], TopicRetention]:
    """The figures by source index and topic."""
    found: dict[tuple[str, str], TopicRetention] = {}
    if row.query is None:
        return found
    now = row.published.snapshot.at
    for index in row.query.polls:
        known = row.query.retention.get(index)
        for one in known.exposures.values() if known is not None else ():
            key = str(index), topic_of(one.partition)
            before = found.get(key, TopicRetention(0.0, None))
            lefts = [s for s in (before.left_seconds, one.left_seconds(now)) if s is not None]
            found[key] = TopicRetention(
                max(before.used_ratio, one.used(now)), min(lefts, default=None)
            )
    return found
