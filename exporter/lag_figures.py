"""Rows -> how far behind each source, topic and, on request, partition is. Pure.

The broker's figure counts for a dead query too. A look that is old, because nobody answers any
more, tells nothing of the present: then there is no figure, rather than Spark's frozen one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .families import Family
from .query_figures import Split
from .row import QueryRow

LABELS = ("app", "query", "source")
LAG = (
    Split(
        "spark_streaming_source_lag_offsets",
        "source",
        "Offsets that each source is ahead, by its index: as the broker has it where it can be "
        "asked, else as Spark reports it.",
        lambda row: row.lag_by_source,
    ),
    Split(
        "spark_streaming_source_lag_reported_offsets",
        "source",
        "Offsets that each source was ahead when Spark planned the last batch: 0 by construction "
        "where nothing limits a batch.",
        lambda row: row.reported_lag_by_source,
    ),
    Split(
        "spark_streaming_source_lag_seconds",
        "source",
        "How long the first record that waits has waited, by its own time; 0 where nothing waits, "
        "absent where it is not known.",
        lambda row: row.lag_seconds_by_source,
    ),
    Split(
        "spark_streaming_source_last_success_timestamp_seconds",
        "source",
        "When the broker of each source last answered.",
        lambda row: {str(index): poll.wall for index, poll in row.polls.items()},
    ),
)


def lag_families(app: str, rows: Sequence[QueryRow], *, by_partition: bool) -> Iterator[Family]:
    """What is finer than a source; those by partition are empty unless asked for."""
    yield from _topic_families(app, rows)
    partitions = Family(
        "spark_streaming_partition_lag_offsets",
        "Offsets that wait in each partition, with the setting lag_by_partition.",
        (*LABELS, "topic", "partition"),
    )
    for row in rows if by_partition else ():
        for index, poll in row.fresh_polls.items():
            for name, lag in poll.lag_by_partition.items():
                topic, _, number = name.rpartition("/")
                if topic:
                    partitions.add((app, row.label, str(index), topic, number), lag)
    yield partitions


def _topic_families(app: str, rows: Sequence[QueryRow]) -> Iterator[Family]:
    offsets = Family(
        "spark_streaming_topic_lag_offsets",
        "Offsets that wait in each topic, as the broker has it.",
        (*LABELS, "topic"),
    )
    seconds = Family(
        "spark_streaming_topic_lag_seconds",
        "How long the first record that waits in each topic has waited, by its own time.",
        (*LABELS, "topic"),
    )
    for row in rows:
        for index, poll in row.fresh_polls.items():
            ages = row.lag_seconds_by_topic(poll)
            for topic, lag in poll.lag_by_topic.items():
                if topic:
                    labels = app, row.label, str(index), topic
                    offsets.add(labels, lag)
                    seconds.add(labels, ages.get(topic))
    yield offsets
    yield seconds
